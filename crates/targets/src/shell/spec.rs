//! A command in the API, and its texts in CLI and documents.

use std::collections::BTreeMap;

use everytick_domain::{
    invalid::Invalid,
    target::{self as domain, ShellTarget, TargetKind},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    kind::{Flag, FlagValue, KindInfo, WireForm},
    mask::{MASK, NOT_STORED, masked, unmask_all},
    object,
};

const ARGV: &[&str] = &["command", "argv"];
const SCRIPT: &[&str] = &["command", "script"];

pub(super) const INFO: KindInfo = KindInfo {
    kind: TargetKind::Shell,
    example: r#"{"command": {"argv": ["backup", "--all"]}}"#,
    reference: "`command` is `argv` (no shell) or `script` (one line for `sh -c`); `env`; `workdir` (an absolute path). \
                Only on nodes with `--enable-shell`",
    flags: &[
        Flag::new("shell", "SCRIPT", SCRIPT, "Run this line with `sh -c`; the server needs --enable-shell")
            .choosing()
            .replacing(ARGV),
        Flag::new("env", "NAME=VALUE", &["env"], "Set this environment variable of the command; repeatable")
            .of(FlagValue::Pair),
        Flag::new("workdir", "DIR", &["workdir"], "Run the command in this directory"),
        Flag::new(
            "command",
            "CMD",
            ARGV,
            "Run this program with its arguments, without a shell; the server needs --enable-shell",
        )
        .of(FlagValue::Words)
        .choosing()
        .replacing(SCRIPT),
    ],
    summary,
    details,
};

fn summary(shown: &Value) -> Option<String> {
    let command = &shown["command"];
    if let Some(argv) = command["argv"].as_array() {
        return Some(argv.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
    }
    Some(format!("sh -c {}", command["script"].as_str()?))
}

/// Shows only the names of the variables, because every value may be a credential.
fn details(shown: &Value) -> Vec<(&'static str, String)> {
    let names = shown["env"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    let workdir = shown["workdir"].as_str().unwrap_or_default().to_owned();
    vec![("Env", names.collect::<Vec<_>>().join(", ")), ("Workdir", workdir)]
}

/// A command that the node executes; only if its operator allows it (`--enable-shell`).
#[derive(Clone, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Shell, example = json!({"command": {"argv": ["/usr/bin/backup", "--all"]}}))]
pub struct Wire {
    #[serde(deserialize_with = "object::required")]
    command: Command,
    /// Environment variables, added to a minimal environment. Answers show `********` for values that carry credentials.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Working directory, an absolute path.
    #[serde(default)]
    #[schema(example = "/srv/reports")]
    workdir: Option<String>,
}

/// A program with its arguments, or a script for `sh -c`: exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1, example = json!({"argv": ["/usr/bin/backup", "--all"]}))]
struct Command {
    #[serde(default, deserialize_with = "object::present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    argv: Option<Vec<String>>,
    #[serde(default, deserialize_with = "object::present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    script: Option<String>,
}

/// Prints no values: they may be credentials, and the text may end up in a log.
impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell").field("command", &self.command).finish_non_exhaustive()
    }
}

impl WireForm for Wire {
    type Spec = ShellTarget;

    fn read(self, old: Option<&ShellTarget>, errors: &mut Vec<Invalid>) -> Option<ShellTarget> {
        let command = match (self.command.argv, self.command.script) {
            (Some(argv), None) => domain::Command::Argv(argv),
            (None, Some(script)) => domain::Command::Script(script),
            _ => {
                let message = "must have exactly one of argv (a list) and script (a text for sh -c)";
                errors.push(Invalid::new("command", message));
                return None;
            }
        };
        // A different command could read the variables of the old one. A relative path or a script can run other code in another
        // directory.
        let old = old.filter(|old| old.command == command && old.workdir == self.workdir).map(|old| &old.env);
        let env = match old.and_then(|old| changed_variable(&self.env, old)) {
            Some(name) => unmask_all("env", self.env, None, &other_environment(&name), errors),
            None => unmask_all("env", self.env, old, NOT_STORED, errors),
        };
        Some(ShellTarget { command, env: env?, workdir: self.workdir })
    }

    fn show(spec: &ShellTarget) -> Self {
        let command = match &spec.command {
            domain::Command::Argv(argv) => Command { argv: Some(argv.clone()), script: None },
            domain::Command::Script(script) => Command { argv: None, script: Some(script.clone()) },
        };
        Self { command, env: masked(&spec.env), workdir: spec.workdir.clone() }
    }
}

/// The first variable that differs from the stored ones: changed, added or removed. `BASH_ENV`, `PATH`, `LD_PRELOAD` or
/// `GIT_ASKPASS` can make an unchanged command run other code, which could read the masked variables.
fn changed_variable(given: &BTreeMap<String, String>, old: &BTreeMap<String, String>) -> Option<String> {
    let changed = given.iter().find(|(name, value)| *value != MASK && old.get(*name) != Some(value));
    let removed = old.iter().find(|(name, _)| !given.contains_key(*name));
    changed.or(removed).map(|(name, _)| name.clone())
}

fn other_environment(changed: &str) -> String {
    format!(
        "is the mask of a credential, but the variable {changed} differs from the stored one, and a variable can make the \
         command print others; send the value itself"
    )
}
