//! Joins the lines of a paragraph in help texts. Sources break lines at a fixed width; clap breaks them again at the width of the
//! terminal, and would otherwise print a long line, a short rest, and so on.

use clap::Command;

/// The command with joined paragraphs, and all its subcommands.
pub(super) fn joined(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|found| found.get_name().to_owned()).collect();
    let help = command.get_after_help().map(|text| join(&text.to_string()));
    let command = names.into_iter().fold(command, |command, name| command.mut_subcommand(name, joined));
    match help {
        Some(help) => command.after_help(help),
        None => command,
    }
}

/// Joins a line with the next one, unless it ends a sentence. Indented lines, such as examples, keep their breaks.
fn join(text: &str) -> String {
    let mut joined = String::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if !joined.is_empty() {
            joined.push(if is_open && is_prose { ' ' } else { '\n' });
        }
        joined.push_str(line);
        is_open = is_prose && !line.ends_with(['.', ':']);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_becomes_one_line_and_examples_and_sentences_keep_theirs() {
        assert_eq!(
            join("Examples:\n  a b\n  c d\n\nOne sentence over\ntwo lines.\nAnother one.\n\nCodes:\n  0  done"),
            "Examples:\n  a b\n  c d\n\nOne sentence over two lines.\nAnother one.\n\nCodes:\n  0  done"
        );
    }
}
