//! The target of a job. Answers never contain credentials (I22), only a mask. A definition that contains the mask keeps the stored
//! value, but only for the same receiver: the same origin and method, or the same command in the same directory and environment.

use std::collections::BTreeMap;

use everytick_domain::target::{self as domain, HttpTarget, QueueTarget, ShellTarget, TargetSpec};
use serde::{Deserialize, Deserializer, Serialize};
use url::Url;
use utoipa::ToSchema;

use super::{Complaints, object};

/// Replaces a credential in answers. It is not a valid secret.
pub(crate) const MASK: &str = "********";

/// Where a job's runs are delivered: exactly one of `http`, `shell` and `queue`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1, example = json!({"http": {"url": "https://example.org/hook"}}))]
pub(crate) struct Target {
    #[serde(default, deserialize_with = "object::named", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) http: Option<Http>,
    #[serde(default, deserialize_with = "object::named", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) shell: Option<Shell>,
    #[serde(default, deserialize_with = "object::named", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) queue: Option<Queue>,
}

/// A queue from which workers claim the runs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueueTarget)]
pub(crate) struct Queue {
    /// Same rules as for the name of a job.
    #[schema(value_type = super::Name, example = "emails")]
    pub(crate) name: String,
}

/// A webhook. With a secret, requests are signed by Standard Webhooks. The run's id is the idempotency key.
#[derive(Clone, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    #[schema(format = "uri", example = "https://example.org/hook", max_length = 2048)]
    pub(crate) url: String,
    /// Default `POST`.
    #[serde(default = "Http::method_default")]
    pub(crate) method: Method,
    /// Sent with every delivery. Answers show `********` for values of headers that carry credentials.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// `whsec_` and 24 to 64 random bytes in base64. Write-only: answers show `********` when it is set.
    #[serde(default)]
    pub(crate) secret: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// A command that the node executes; only if its operator allows it (`--enable-shell`).
#[derive(Clone, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shell {
    #[serde(deserialize_with = "object::required")]
    pub(crate) command: Command,
    /// Environment variables, added to a minimal environment. Answers show `********` for values that carry credentials.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory, an absolute path.
    #[serde(default)]
    #[schema(example = "/srv/reports")]
    pub(crate) workdir: Option<String>,
}

/// A program with its arguments, or a script for `sh -c`: exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1, example = json!({"argv": ["/usr/bin/backup", "--all"]}))]
pub(crate) struct Command {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) argv: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) script: Option<String>,
}

/// For one of several alternative fields: it may be absent, but not `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl Http {
    const fn method_default() -> Method {
        Method::Post
    }
}

// Print no values: they may be credentials, and the text may end up in a log.
impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("method", &self.method).finish_non_exhaustive()
    }
}
impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell").field("command", &self.command).finish_non_exhaustive()
    }
}

impl Target {
    /// `old` is the stored target, which provides masked values. Errors name fields of the job.
    pub(crate) fn read(
        self,
        old: Option<&TargetSpec>,
        shell_enabled: bool,
        wrong: &mut Complaints,
    ) -> Option<TargetSpec> {
        let spec = match (self.http, self.shell, self.queue) {
            (Some(http), None, None) => {
                let old = old.and_then(|old| if let TargetSpec::Http(http) = old { Some(http) } else { None });
                TargetSpec::Http(http.read(old, wrong)?)
            }
            (None, Some(shell), None) => {
                if !shell_enabled {
                    wrong.add("target.shell", "is not enabled on this node; start the node with --enable-shell");
                }
                let old = old.and_then(|old| if let TargetSpec::Shell(shell) = old { Some(shell) } else { None });
                TargetSpec::Shell(shell.read(old, wrong)?)
            }
            (None, None, Some(queue)) => TargetSpec::Queue(QueueTarget { name: queue.name }),
            (None, None, None) => {
                wrong.add("target", "is empty; write one of http, shell and queue");
                return None;
            }
            _ => {
                wrong.add("target", "has several kinds; write only one of http, shell and queue");
                return None;
            }
        };
        wrong.extend(everytick_targets::validate(&spec));
        Some(spec)
    }
}

impl Http {
    fn read(self, old: Option<&HttpTarget>, wrong: &mut Complaints) -> Option<HttpTarget> {
        // A credential belongs to one receiver. A client that wants to send it elsewhere must know it.
        let old = old.filter(|old| same_origin(&old.url, &self.url) && Method::from(old.method) == self.method);
        let headers = unmask_all("target.http.headers", self.headers, old.map(|old| &old.headers), NOT_STORED, wrong);
        let secret = match self.secret {
            Some(secret) if secret == MASK => {
                let kept = old.and_then(|old| old.secret.clone());
                if kept.is_none() {
                    wrong.add("target.http.secret", NOT_STORED);
                }
                kept
            }
            given => given,
        };
        Some(HttpTarget { url: self.url, method: self.method.into(), headers: headers?, secret })
    }
}

impl Shell {
    fn read(self, old: Option<&ShellTarget>, wrong: &mut Complaints) -> Option<ShellTarget> {
        let command = match (self.command.argv, self.command.script) {
            (Some(argv), None) => domain::Command::Argv(argv),
            (None, Some(script)) => domain::Command::Script(script),
            _ => {
                wrong.add(
                    "target.shell.command",
                    "must have exactly one of argv (a list) and script (a text for sh -c)",
                );
                return None;
            }
        };
        // A different command could read the variables of the old one. A relative path or a script can run other code in another
        // directory.
        let old = old.filter(|old| old.command == command && old.workdir == self.workdir).map(|old| &old.env);
        let env = match old.and_then(|old| changed_variable(&self.env, old)) {
            Some(name) => unmask_all("target.shell.env", self.env, None, &other_environment(&name), wrong),
            None => unmask_all("target.shell.env", self.env, old, NOT_STORED, wrong),
        };
        Some(ShellTarget { command, env: env?, workdir: self.workdir })
    }
}

const NOT_STORED: &str = "is the mask of a credential, but no value is stored for this receiver (its origin and method, or its \
                          command and workdir); send the value itself";

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

/// Compares scheme, host and port, parsed in the same way as the HTTP client parses them.
fn same_origin(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin().is_tuple() && one.origin() == other.origin(),
        _ => false,
    }
}

fn unmask_all(
    field: &str,
    given: BTreeMap<String, String>,
    old: Option<&BTreeMap<String, String>>,
    not_kept: &str,
    wrong: &mut Complaints,
) -> Option<BTreeMap<String, String>> {
    let unmasked = given.into_iter().map(|(name, value)| {
        if value != MASK {
            return Some((name, value));
        }
        let kept = old.and_then(|old| old.get(&name)).cloned();
        if kept.is_none() {
            wrong.add(&format!("{field}.{name}"), not_kept);
        }
        kept.map(|kept| (name, kept))
    });
    unmasked.collect()
}

/// Whether a header or variable carries a credential, judged by its name.
fn is_credential(name: &str) -> bool {
    const PARTS: [&str; 10] =
        ["auth", "cookie", "credential", "key", "pass", "pwd", "secret", "session", "sign", "token"];
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

fn masked(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |name: &str, value: &str| if is_credential(name) { MASK.to_owned() } else { value.to_owned() };
    values.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect()
}

impl From<&TargetSpec> for Target {
    fn from(spec: &TargetSpec) -> Self {
        match spec {
            TargetSpec::Http(http) => Self {
                http: Some(Http {
                    url: http.url.clone(),
                    method: http.method.into(),
                    headers: masked(&http.headers),
                    secret: http.secret.as_ref().map(|_| MASK.to_owned()),
                }),
                ..Self::default()
            },
            TargetSpec::Shell(shell) => {
                let command = match &shell.command {
                    domain::Command::Argv(argv) => Command { argv: Some(argv.clone()), script: None },
                    domain::Command::Script(script) => Command { argv: None, script: Some(script.clone()) },
                };
                let shell = Shell { command, env: masked(&shell.env), workdir: shell.workdir.clone() };
                Self { shell: Some(shell), ..Self::default() }
            }
            TargetSpec::Queue(queue) => Self { queue: Some(Queue { name: queue.name.clone() }), ..Self::default() },
        }
    }
}

same_words!(Method = domain::HttpMethod { Get, Post, Put, Patch, Delete });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_after_parsing_not_as_text() {
        for same in ["https://example.org/other?q#f", "HTTPS://EXAMPLE.org:443", "https://user@example.org/"] {
            assert!(same_origin("https://example.org/hook", same), "{same}");
        }
        for other in [
            "http://example.org/hook",
            "https://example.org:8443/hook",
            "https://example.org.evil.example/hook",
            "https://example.org@evil.example/hook",
            "https://example.org\\@evil.example/hook",
            "https:/\t/evil.example/hook",
            "example.org/hook",
            "",
        ] {
            assert!(!same_origin("https://example.org@good.example/hook", other), "{other}");
        }
        assert!(!same_origin("data:x", "data:x"), "opaque origins are never equal");
    }
}
