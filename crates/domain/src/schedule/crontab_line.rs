//! Recognizes a crontab line with its command where an expression is expected, for a better error message.

use super::parse::{NICKNAMES, parse_fields};

/// The fields of an expression without seconds and year.
const FIELDS: usize = 5;

/// The error message for a crontab line, which has a command after its schedule. `None` if the text is not such a line.
pub(super) fn refusal(written: &str) -> Option<String> {
    let (expression, command) = split(written.trim())?;
    Some(format!(
        "{written:?} looks like a line of a crontab; write only its schedule, {expression:?}, and {command:?} as the command of \
         a shell target"
    ))
}

fn split(line: &str) -> Option<(&str, &str)> {
    let fields =
        if NICKNAMES.iter().any(|(name, _)| line.split_whitespace().next() == Some(name)) { 1 } else { FIELDS };
    let mut rest = line;
    for _ in 0..fields {
        rest = rest.trim_start();
        rest = &rest[rest.find(char::is_whitespace)?..];
    }
    let (expression, command) = (line[..line.len() - rest.len()].trim_end(), rest.trim_start());
    let is_field = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || "*,-/?#+".contains(c);
    let first = command.split_whitespace().next()?;
    let is_command = first.starts_with('/') || !first.chars().all(is_field);
    (is_command && (fields == 1 || parse_fields(expression, Some("")).is_ok())).then_some((expression, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crontab_line_is_split_into_schedule_and_command() {
        for (line, expected) in [
            ("0 2 * * * /usr/bin/backup", Some(("0 2 * * *", "/usr/bin/backup"))),
            ("0  2 * * MON-FRI\troot /usr/bin/backup --all", Some(("0  2 * * MON-FRI", "root /usr/bin/backup --all"))),
            ("@daily /usr/bin/backup", Some(("@daily", "/usr/bin/backup"))),
            ("*/5 * * * * $HOME/run.sh", Some(("*/5 * * * *", "$HOME/run.sh"))),
            ("0 2 * * *", None),
            ("0 0 2 * * *", None),
            ("0 0 2 * * * 2027", None),
            ("0 0 2 * * 61", None),
            ("61 2 * * * /usr/bin/backup", None),
            ("@daily", None),
            ("@never x", None),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }
}
