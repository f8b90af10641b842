//! Where a job's runs go. Credentials go in and never come out (I22): answers show a mask in their place, and a definition
//! that carries the mask keeps what is stored, if it goes where it went before: to the same origin by the same method, or to the
//! same command in the same environment.

use std::collections::BTreeMap;

use everytick_domain::target::{self as domain, HttpTarget, QueueTarget, ShellTarget, TargetSpec};
use serde::{Deserialize, Deserializer, Serialize};
use url::Url;
use utoipa::ToSchema;

use super::{Complaints, object};

/// Stands for a credential in answers. It is no valid secret.
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

/// A queue from which workers take the runs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueueTarget)]
pub(crate) struct Queue {
    /// As names of jobs are.
    #[schema(value_type = super::Name, example = "emails")]
    pub(crate) name: String,
}

/// A webhook: signed by Standard Webhooks when it has a secret; the run's id is its idempotency key.
#[derive(Clone, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    #[schema(format = "uri", example = "https://example.org/hook", max_length = 2048)]
    pub(crate) url: String,
    /// `POST` unless it says so.
    #[serde(default = "Http::method_default")]
    pub(crate) method: Method,
    /// Sent with every delivery. Values of headers that carry credentials are answered as `********`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// `whsec_` and 24 to 64 random bytes in base64. Write-only: answered as `********` when set.
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

/// A command on the node that does the run; only where its operator allows it (`--enable-shell`).
#[derive(Clone, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shell {
    #[serde(deserialize_with = "object::required")]
    pub(crate) command: Command,
    /// The environment, which is otherwise clean. Values of variables that carry credentials are answered as `********`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// An absolute path.
    #[serde(default)]
    #[schema(example = "/srv/reports")]
    pub(crate) workdir: Option<String>,
}

/// A program with its arguments, or a script for `sh -c`: exactly one of the two.
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

/// One of several that is named has a value: `null` is not a way to leave it out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl Http {
    const fn method_default() -> Method {
        Method::Post
    }
}

// No value is printed: it may be a credential, and this may end up in a log.
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
    /// `old` is the target as stored, from which masked values are taken. Complaints name fields of the job.
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
                    wrong
                        .add("target.shell", "is not enabled on this node; its operator starts it with --enable-shell");
                }
                let old = old.and_then(|old| if let TargetSpec::Shell(shell) = old { Some(shell) } else { None });
                TargetSpec::Shell(shell.read(old, wrong)?)
            }
            (None, None, Some(queue)) => TargetSpec::Queue(QueueTarget { name: queue.name }),
            (None, None, None) => {
                wrong.add("target", "names no kind; write one of http, shell and queue");
                return None;
            }
            _ => {
                wrong.add("target", "names several kinds; write only one of http, shell and queue");
                return None;
            }
        };
        wrong.extend(everytick_targets::validate(&spec));
        Some(spec)
    }
}

impl Http {
    fn read(self, old: Option<&HttpTarget>, wrong: &mut Complaints) -> Option<HttpTarget> {
        // A credential goes to the receiver it was given for: whoever sends it elsewhere must know it.
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
                    "is not one thing; write either argv, a list, or script, a text for sh -c",
                );
                return None;
            }
        };
        // Another command would read the variables of the one that they were given to. What a relative path or a script runs
        // depends on the directory too.
        let old = old.filter(|old| old.command == command && old.workdir == self.workdir).map(|old| &old.env);
        let env = match old.and_then(|old| changed_variable(&self.env, old)) {
            Some(name) => unmask_all("target.shell.env", self.env, None, &other_environment(&name), wrong),
            None => unmask_all("target.shell.env", self.env, old, NOT_STORED, wrong),
        };
        Some(ShellTarget { command, env: env?, workdir: self.workdir })
    }
}

const NOT_STORED: &str = "is the mask that answers show, and nothing is stored in its place for this receiver (its origin and \
                          method, or its command and workdir); write the value itself";

/// The first variable that is not as stored: changed, added or left out. `BASH_ENV`, `PATH`, `LD_PRELOAD` or `GIT_ASKPASS` make an
/// unchanged command run other code, which reads the masked variables.
fn changed_variable(given: &BTreeMap<String, String>, old: &BTreeMap<String, String>) -> Option<String> {
    let changed = given.iter().find(|(name, value)| *value != MASK && old.get(*name) != Some(value));
    let removed = old.iter().find(|(name, _)| !given.contains_key(*name));
    changed.or(removed).map(|(name, _)| name.clone())
}

fn other_environment(changed: &str) -> String {
    format!(
        "is the mask that answers show, and the variable {changed} is not as stored: a variable can make the command print \
         others; send the value itself again"
    )
}

/// Scheme, host and port, as the client that delivers will read them.
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

/// Whether a header or variable carries a credential, going by its name.
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
    fn an_origin_is_compared_as_it_is_read_and_not_as_it_is_written() {
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
        assert!(!same_origin("data:x", "data:x"), "an opaque origin is nobody's");
    }
}
