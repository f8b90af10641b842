//! `shell`: a node runs a command.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::TargetRules;
use crate::{
    retry::RetryPolicy,
    secret::{Place, Text},
};

/// A command that the node executes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellTarget {
    /// The program and its arguments, or one line for `sh -c`.
    pub command: Command,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
}

impl TargetRules for ShellTarget {
    /// A command may have done half its work, so it is not repeated by default.
    fn retry_default(&self) -> RetryPolicy {
        RetryPolicy::with_retries(0)
    }

    fn retry_when_omitted(&self) -> RetryPolicy {
        RetryPolicy::first_default(0)
    }

    fn texts<'a>(&'a self, each: &mut dyn FnMut(Text<'a>)) {
        let parts = match &self.command {
            Command::Argv(argv) => argv.as_slice(),
            Command::Script(script) => std::slice::from_ref(script),
        };
        for text in parts {
            each(Text { field: "command", entry: None, text, place: Place::Nowhere });
        }
        for (name, text) in &self.env {
            each(Text { field: "env", entry: Some(name), text, place: Place::Anywhere });
        }
        if let Some(text) = &self.workdir {
            each(Text { field: "workdir", entry: None, text, place: Place::Nowhere });
        }
    }
}

/// Prints variable names but no values: they may be credentials.
impl fmt::Debug for ShellTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, env, workdir) = (&self.command, self.env.keys(), &self.workdir);
        write!(f, "ShellTarget {{ command: {command:?}, env: {env:?}, workdir: {workdir:?} }}")
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Argv(Vec<String>),
    Script(String),
}
