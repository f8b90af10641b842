//! The flags of the target. They come from the registry of targets, so a new kind needs no change here.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use everytick_domain::target::TargetKind;
use everytick_targets::{Flag, FlagValue, KINDS};
use serde_json::Value;

use super::document::{Document, read_text};

/// The flags that `job create` and `job update` have.
#[derive(Clone, Debug, Default)]
pub(super) struct TargetFlags(Vec<Given>);

/// The flags that only `job update` has.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoveFlags(Vec<Given>);

/// A flag with its values. A value of a map has a name; the name of any other value is empty.
#[derive(Clone, Debug)]
struct Given {
    kind: TargetKind,
    flag: Flag,
    values: Vec<(String, String)>,
}

fn flags(remove: bool) -> impl Iterator<Item = (TargetKind, Flag)> {
    let all = KINDS.iter().flat_map(|info| info.flags.iter().map(|flag| (info.kind, *flag)));
    all.filter(move |(_, flag)| (flag.value == FlagValue::Remove) == remove)
}

fn arg(kind: TargetKind, flag: Flag) -> Arg {
    let arg = Arg::new(flag.name).value_name(flag.value_name).help(flag.help);
    let arg = match flag.value {
        FlagValue::Words => return arg.last(true).num_args(1..).action(ArgAction::Append).group("target"),
        FlagValue::Text if flag.chooses => arg.action(ArgAction::Set).value_parser(not_empty),
        FlagValue::Text | FlagValue::UpperCase | FlagValue::Secret => arg.action(ArgAction::Set),
        FlagValue::Header => arg.action(ArgAction::Append).value_parser(header),
        FlagValue::Pair => arg.action(ArgAction::Append).value_parser(variable),
        FlagValue::Remove => arg.action(ArgAction::Append),
    };
    let arg = arg.long(flag.name).help_heading("What");
    if flag.chooses {
        return arg.group("target");
    }
    let others = flags(false).filter(|(other, flag)| *other != kind && flag.chooses);
    arg.conflicts_with_all(others.map(|(_, flag)| flag.name))
}

fn given(matches: &ArgMatches, remove: bool) -> Vec<Given> {
    let unnamed = |value: &String| (String::new(), value.clone());
    let values = |flag: Flag| -> Option<Vec<(String, String)>> {
        match flag.value {
            FlagValue::Header | FlagValue::Pair => Some(matches.get_many(flag.name)?.cloned().collect()),
            _ => Some(matches.get_many(flag.name)?.map(unnamed).collect()),
        }
    };
    flags(remove).filter_map(|(kind, flag)| Some(Given { kind, flag, values: values(flag)? })).collect()
}

macro_rules! implement_args {
    ($($flags:ident $remove:literal)*) => {$(
        impl FromArgMatches for $flags {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok(Self(given(matches, $remove)))
            }
            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                self.0 = given(matches, $remove);
                Ok(())
            }
        }
        impl Args for $flags {
            fn augment_args(command: Command) -> Command {
                command.args(flags($remove).map(|(kind, flag)| arg(kind, flag)))
            }
            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }
        impl $flags {
            /// Sets the fields whose flags are given.
            pub(super) fn set(&self, document: &mut Document) -> anyhow::Result<()> {
                self.0.iter().try_for_each(|given| given.set(document))
            }
        }
    )*};
}
implement_args! { TargetFlags false RemoveFlags true }

impl TargetFlags {
    /// In an update, removes all other kinds if a flag chooses a kind.
    pub(super) fn replace(&self, document: &mut Document) {
        for given in self.0.iter().filter(|given| given.flag.chooses) {
            for other in TargetKind::ALL.iter().filter(|kind| **kind != given.kind) {
                document.set(&["target", other.word()], Value::Null);
            }
            if let Some(field) = given.flag.replaces {
                document.set(&given.path(field), Value::Null);
            }
        }
    }
}

impl Given {
    fn path<'a>(&self, field: &[&'a str]) -> Vec<&'a str> {
        [&["target", self.kind.word()], field].concat()
    }

    fn set(&self, document: &mut Document) -> anyhow::Result<()> {
        let path = self.path(self.flag.field);
        if self.flag.value == FlagValue::Words {
            let words: Vec<&str> = self.values.iter().map(|(_, word)| word.as_str()).collect();
            document.set(&path, words.into());
            return Ok(());
        }
        for (name, value) in &self.values {
            match self.flag.value {
                FlagValue::Text | FlagValue::Words => document.set(&path, value.as_str().into()),
                FlagValue::UpperCase => document.set(&path, value.to_ascii_uppercase().into()),
                FlagValue::Secret => document.set(&path, secret(&format!("--{}", self.flag.name), value)?.into()),
                FlagValue::Header | FlagValue::Pair => {
                    document.set(&[path.as_slice(), &[name.as_str()]].concat(), value.as_str().into());
                }
                FlagValue::Remove => document.set(&[path.as_slice(), &[value.as_str()]].concat(), Value::Null),
            }
        }
        Ok(())
    }
}

fn secret(flag: &str, text: &str) -> anyhow::Result<String> {
    match text.strip_prefix('@') {
        Some(path) => Ok(read_text(flag, Path::new(path))?.trim().to_owned()),
        None => Ok(text.to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is not a header; write it like \"Authorization: Bearer abc\"")),
    }
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the value is empty; write a value, as in the examples of --help".to_owned());
    }
    Ok(text.to_owned())
}

/// A variable for the command, which does not get the variables of the shell that runs `job create`.
fn variable(text: &str) -> Result<(String, String), String> {
    pair(text).map_err(|_| match text.split_once('=') {
        None => format!("{text:?} has no value; write it like \"{text}=value\""),
        // The value may be a credential.
        Some(_) => "the variable has no name; write it like \"NAME=value\"".to_owned(),
    })
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not a name and a value; write it like \"team=billing\"")),
    }
}
