//! Parses the command line, and turns every error of clap into a sentence: which argument, which value, and what would be right.
//! Only this file uses the error types of clap.

use std::{error::Error as _, ffi::OsString};

use clap::{
    Arg, ArgAction, Command, CommandFactory, Error, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use everytick_domain::wrong_input::nearest;

use super::{Cli, paragraphs};
use crate::failure::Failure;

/// The command line, or why it is wrong. Prints the help or the version and ends the process, if the arguments request it.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Failure> {
    let args = join_negative(args.into_iter().collect());
    let matches = paragraphs::joined(Cli::command()).try_get_matches_from(&args);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        _ => Failure::usage(Line::new(&args).refusal(&error)),
    })
}

/// Writes `--every -5m` as `--every=-5m`. Otherwise clap takes a negative value for a flag, and the error is not about the value.
fn join_negative(args: Vec<OsString>) -> Vec<OsString> {
    let is_negative =
        |text: &str| text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let mut joined: Vec<OsString> = Vec::new();
    for (index, arg) in args.iter().enumerate() {
        if args[..index].iter().any(|arg| arg == "--") {
            joined.push(arg.clone());
            continue;
        }
        let value = arg.to_str().filter(|text| is_negative(text));
        match (value, index.checked_sub(1).and_then(|before| args[before].to_str())) {
            (Some(value), Some(flag)) if Line::new(&args[..index]).flag(flag).is_some_and(takes_value) => {
                joined.pop();
                joined.push(format!("{flag}={value}").into());
            }
            _ => joined.push(arg.clone()),
        }
    }
    joined
}

/// Whether the next argument is the value of this flag.
fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set()
}

/// The arguments, and the command that they name.
struct Line {
    args: Vec<String>,
    /// `everytick job create`
    path: String,
    command: Command,
    root: Command,
}

impl Line {
    fn new(args: &[OsString]) -> Self {
        let args: Vec<String> = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut root = Cli::command();
        root.build();
        let (mut command, mut path) = (root.clone(), root.get_name().to_owned());
        for arg in args.iter().take_while(|arg| *arg != "--") {
            if let Some(found) = command.find_subcommand(arg).cloned() {
                path = format!("{path} {}", found.get_name());
                command = found;
            }
        }
        Self { args, path, command, root }
    }

    fn flag(&self, written: &str) -> Option<&Arg> {
        let mut all = self.command.get_arguments().chain(self.root.get_arguments());
        all.find(|arg| {
            let long = arg.get_long_and_visible_aliases().unwrap_or_default();
            let short = arg.get_short_and_visible_aliases().unwrap_or_default();
            written.strip_prefix("--").is_some_and(|name| long.contains(&name))
                || written.strip_prefix('-').is_some_and(|name| short.iter().any(|short| name == short.to_string()))
        })
    }

    fn refusal(&self, error: &Error) -> String {
        format!("{}\n`{} --help` has examples", self.sentence(error), self.path)
    }

    fn sentence(&self, error: &Error) -> String {
        let arg = text(error, ContextKind::InvalidArg);
        let value = text(error, ContextKind::InvalidValue);
        match error.kind() {
            ErrorKind::InvalidValue if value.is_empty() => self.no_value(&arg),
            ErrorKind::InvalidValue => {
                format!("{}: {}", self.named(&arg), one_of(&value, &texts(error, ContextKind::ValidValue)))
            }
            ErrorKind::ValueValidation => self.wrong_value(&arg, &value, error),
            ErrorKind::UnknownArgument => self.unknown(&arg),
            ErrorKind::InvalidSubcommand => {
                let word = text(error, ContextKind::InvalidSubcommand);
                format!("{word:?} is not a command of {}; {}", self.path, choose(&word, &self.commands()))
            }
            ErrorKind::MissingSubcommand => {
                format!("{}: the command is missing; write one of {}", self.path, self.commands().join(", "))
            }
            ErrorKind::MissingRequiredArgument => self.missing(&texts(error, ContextKind::InvalidArg)),
            ErrorKind::ArgumentConflict => {
                let other = texts(error, ContextKind::PriorArg);
                let other: Vec<_> = other.iter().map(|other| name(other)).collect();
                let (arg, other) = (name(&arg), other.join(", "));
                if other.is_empty() || other == arg {
                    return format!("{arg} occurs twice; write it once");
                }
                format!("{arg} and {other} exclude each other; write only one of them")
            }
            ErrorKind::NoEquals => format!("{0}: the value has no =; write {0}=VALUE", name(&arg)),
            ErrorKind::TooManyValues | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
                format!("{}: the number of values is wrong; write one value", name(&arg))
            }
            ErrorKind::InvalidUtf8 => "an argument is not UTF-8 text; write it in UTF-8".to_owned(),
            _ => format!("the arguments of {} are wrong; compare them with the examples", self.path),
        }
    }

    fn commands(&self) -> Vec<String> {
        self.command.get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }

    /// The name of the flag or positional argument. If the flag is not on the command line, its value came from its variable, so
    /// the text names the variable too.
    fn named(&self, arg: &str) -> String {
        let flag = name(arg);
        let given = |written: &String| written == &flag || written.starts_with(&format!("{flag}="));
        let env = self.flag(&flag).filter(|found| {
            let short = found.get_short().map(|short| format!("-{short}"));
            !self
                .args
                .iter()
                .any(|written| given(written) || short.as_ref().is_some_and(|short| written.starts_with(short)))
        });
        match env.and_then(Arg::get_env) {
            Some(variable) => format!("{flag} (from {})", variable.to_string_lossy()),
            None => flag,
        }
    }

    fn missing(&self, args: &[String]) -> String {
        let (are, them) = if args.len() == 1 { ("is", "it") } else { ("are", "them") };
        let selects = self.flag("--label").is_some() && self.flag("--all").is_some();
        let or = if selects { ", or select jobs with --label or --all" } else { "" };
        format!("{} {are} missing; add {them} to `{}`{or}", args.join(" and "), self.path)
    }

    fn no_value(&self, arg: &str) -> String {
        format!("{}: the value is missing; write {}", name(arg), arg.replace(['<', '>'], ""))
    }

    fn wrong_value(&self, arg: &str, value: &str, error: &Error) -> String {
        let named = self.named(arg);
        let message = error.source().map(ToString::to_string).unwrap_or_default();
        if let Some((_, range)) = message.split_once(" is not in ") {
            return format!(
                "{named}: {value:?} is out of range; write {}",
                range.replace("..=", " to ").replace("..", " to ")
            );
        }
        let number =
            ["invalid digit", "number too", "cannot parse integer"].iter().any(|begin| message.starts_with(begin));
        if number {
            return format!("{named}: {value:?} is not a whole number; write it like 5");
        }
        if message == "value was not a boolean" {
            return format!("{named}: {value:?} is neither true nor false; write one of them");
        }
        // Messages of our own types name the value, except where it may be a secret.
        format!("{named}: {message}")
    }

    fn unknown(&self, arg: &str) -> String {
        if arg.starts_with("--") && arg.len() > 2 {
            let known: Vec<String> =
                self.command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
            let known_by: Vec<&str> = known.iter().map(String::as_str).collect();
            return match nearest(arg, known_by) {
                Some(meant) => format!("{arg} is not a flag of `{}`; did you mean {meant}?", self.path),
                None => format!("{arg} is not a flag of `{0}`; remove it, or see the flags in `{0} --help`", self.path),
            };
        }
        if let Some(sentence) = self.unquoted_cron() {
            return sentence;
        }
        if arg.starts_with('-') && !arg.starts_with("--") && arg.len() > 1 {
            let short = self.command.get_arguments().filter_map(Arg::get_short).filter(|short| *short != 'h');
            let known: Vec<String> = short.map(|short| format!("-{short}")).collect();
            let known = known.join(", ");
            let path = &self.path;
            return format!(
                "{arg} is not a flag of `{path}`, which has {known}; a name begins with a letter or a digit"
            );
        }
        let before =
            self.args.iter().position(|written| written == arg).and_then(|at| self.args.get(at.checked_sub(1)?));
        match before.and_then(|flag| Some((flag, self.flag(flag)?))) {
            Some((flag, found)) if found.is_require_equals_set() => {
                format!("{flag}: the value {arg:?} is a separate argument; write {flag}={arg}")
            }
            _ => format!("{arg:?} is one argument too many for `{}`; put a text with spaces in quotes", self.path),
        }
    }

    /// Without quotes, the shell passes each field as its own argument and replaces `*` with file names.
    fn unquoted_cron(&self) -> Option<String> {
        let at = match self.path.as_str() {
            "everytick cron next" | "everytick cron explain" => {
                self.args.iter().position(|arg| arg == "next" || arg == "explain")?
            }
            _ => self.args.iter().position(|arg| arg == "--cron")?,
        };
        let first = self.args.get(at + 1)?;
        if first.contains(char::is_whitespace) || first.starts_with('@') || first.starts_with("--") {
            return None;
        }
        let is_field = |arg: &&String| {
            arg.chars().all(|c| c.is_ascii_alphanumeric() || "*,-/?#+".contains(c)) && !arg.starts_with("--")
        };
        let fields: Vec<&str> = self.args[at + 1..].iter().take_while(is_field).take(5).map(String::as_str).collect();
        let looks_right = fields.len() == 5 && fields.contains(&"*");
        let example = if looks_right { fields.join(" ") } else { "0 2 * * *".to_owned() };
        let (flag, argument) = if self.args[at] == "--cron" { ("--cron", "--cron ") } else { ("EXPR", "") };
        Some(format!(
            "{flag}: {first:?} is only a part of a cron expression; put all fields in quotes: {argument}'{example}'"
        ))
    }
}

/// `--output <FORMAT>` is `--output`; `<RUN>` is `RUN`.
fn name(arg: &str) -> String {
    // Clap writes `--flag <VALUE>`, `<NAME>...` or, for a name that may be missing, `[NAME]...`.
    let arg = arg.trim_start_matches('[');
    let first = arg.split([' ', '=', '[', ']']).next().unwrap_or(arg);
    first.trim_matches(['<', '>', '.']).to_owned()
}

fn one_of(value: &str, words: &[String]) -> String {
    format!("{value:?} is not one of the values; {}", choose(value, words))
}

fn choose(word: &str, words: &[String]) -> String {
    match nearest(word, words.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant:?}? Write one of {}", words.join(", ")),
        None => format!("write one of {}", words.join(", ")),
    }
}

fn text(error: &Error, kind: ContextKind) -> String {
    texts(error, kind).into_iter().next().unwrap_or_default()
}

fn texts(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let args = line.split('|').map(OsString::from);
        parse([OsString::from("everytick")].into_iter().chain(args)).unwrap_err().to_string()
    }

    #[test]
    fn every_error_of_the_command_line_is_a_sentence_with_the_value_and_a_remedy() {
        for (line, parts) in [
            ("job|create|x|--cron|0|2|*|*|*|--url|http://h/", &["--cron: \"0\"", "--cron '0 2 * * *'"][..]),
            ("job|create|x|--cron|0|2|a.txt|b.txt", &["--cron: \"0\"", "--cron '0 2 * * *'"]),
            ("cron|next|*/5|*|*|*|*", &["EXPR: \"*/5\"", "'*/5 * * * *'"]),
            ("job|create|x|--every|-5m", &["--every: \"-5m\"", "\"15m\""]),
            ("job|create|x|--priority|-1", &["--priority: \"-1\"", "0 to 9"]),
            ("job|create|x|--priority|high", &["--priority: \"high\"", "0 to 9"]),
            ("job|next|x|-n|0", &["--count: \"0\"", "1 to 1000"]),
            ("job|next|x|-n|-3", &["--count: \"-3\"", "1 to 1000"]),
            ("job|create|x|--overlap|alow", &["--overlap: \"alow\"", "did you mean \"allow\"?"]),
            ("-o|xml|job|list", &["--output: \"xml\"", "table, json"]),
            ("job|create|x|--cron", &["--cron", "write --cron EXPR"]),
            ("job|create|x|--cron|@daily|--every|5m", &["--cron and --every", "only one"]),
            ("job|list|--enabledd", &["--enabledd", "did you mean --enabled?"]),
            ("job|list|--zzzzzz", &["--zzzzzz", "job list --help"]),
            ("job|gte|x", &["\"gte\"", "did you mean \"get\"?"]),
            ("jbo", &["\"jbo\"", "did you mean \"job\"?"]),
            ("cron|next", &["<EXPR> is missing; add it", "everytick cron next"]),
            ("token|create", &["--role <ROLE> and <NAME> are missing; add them to `everytick token create`"]),
            (
                "job|pause",
                &["<JOB>... is missing; add it to `everytick job pause`, or select jobs with --label or --all"],
            ),
            ("serve|--enable-shell|yes", &["--enable-shell", "\"yes\"", "--enable-shell=yes"]),
            ("serve|--enable-shell=maybe", &["--enable-shell", "\"maybe\"", "true nor false"]),
            ("job|get|-x", &["-x is not a flag of `everytick job get`", "-o", "begins with a letter"]),
            ("job|create|-x|--queue|q", &["-x is not a flag", "-f, ", "begins with a letter"]),
            ("job|create|x|--env|FOO|--shell|date", &["--env: \"FOO\" has no value", "\"FOO=value\""]),
            ("job|create|x|--env|=a|--shell|date", &["--env: the variable has no name", "\"NAME=value\""]),
            ("job|create|x|--shell|", &["--shell: the value is empty"]),
            ("job|create|x|--url| ", &["--url: the value is empty"]),
            ("run|get|a|b", &["\"b\"", "in quotes"]),
        ] {
            let message = refused(line);
            for part in parts {
                assert!(message.contains(part), "{line}: {part}: {message}");
            }
            for foreign in
                ["tip:", "unexpected argument", "invalid value", "invalid digit", "..=", "Usage:", "subcommand"]
            {
                assert!(!message.contains(foreign), "{line}: {message}");
            }
        }
    }

    #[test]
    fn negative_values_reach_their_flag_and_commands_of_jobs_are_not_changed() {
        let joined = |line: &str| -> Vec<String> {
            let args = std::iter::once("everytick").chain(line.split(' ')).map(OsString::from);
            join_negative(args.collect()).into_iter().skip(1).map(|arg| arg.into_string().unwrap()).collect()
        };
        assert_eq!(joined("run list --from -2h --limit -5"), ["run", "list", "--from=-2h", "--limit=-5"]);
        assert_eq!(joined("job next x -n -3"), ["job", "next", "x", "-n=-3"]);
        assert_eq!(joined("job create x -- head -5"), ["job", "create", "x", "--", "head", "-5"]);
        assert_eq!(joined("job create x -- nice --n -5"), ["job", "create", "x", "--", "nice", "--n", "-5"]);
        assert_eq!(joined("serve --enable-shell -5"), ["serve", "--enable-shell", "-5"]);
    }
}
