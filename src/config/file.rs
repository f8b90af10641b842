//! Reads `everytick.toml`. An error names the file, the line, the key, the value and what would be right.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, CommandFactory};
use everytick_api::{AllowedHost, PublicUrl};
use everytick_domain::{
    time::Span,
    wrong_input::{Accepts, ReadError, nearest, os_error},
};
use serde::Deserialize;
use toml::{Table, Value};

use super::{
    AddressRange, Auth, ClientCertKeys, DnsServer, EgressKeys, FILE_DEFAULT, InlineSecrets, Listen, ListenKey,
    ProxyAuthKeys, ShellKeys, TlsClientAuth,
};
use crate::{
    cli::{Cli, serve::ServeFlags},
    failure::Failure,
    logging::{LogFormat, LogLevel},
    output::Format,
};

/// `everytick.toml`. Each key is a flag's name in snake_case; any other key is an error that names the key.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) server: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) client_cert: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
    pub(crate) output: Option<Format>,
    pub(crate) utc: Option<bool>,
    pub(crate) listen: Option<ListenKey>,
    pub(crate) metrics_listen: Option<Listen>,
    pub(crate) public_url: Option<PublicUrl>,
    pub(crate) allow_host: Option<Vec<AllowedHost>>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_client_ca: Option<PathBuf>,
    pub(crate) tls_client_auth: Option<TlsClientAuth>,
    pub(crate) insecure_http: Option<bool>,
    pub(crate) auth: Option<Auth>,
    pub(crate) bootstrap_token_file: Option<PathBuf>,
    pub(crate) token_ttl_max: Option<Span>,
    pub(crate) allow_tokens_without_expiry: Option<bool>,
    pub(crate) secret_key_files: Option<Vec<PathBuf>>,
    pub(crate) inline_secrets: Option<InlineSecrets>,
    pub(crate) data_dir: Option<PathBuf>,
    /// Unparsed. It may contain a password, so no message repeats it.
    pub(crate) database_url: Option<String>,
    pub(crate) database_url_file: Option<PathBuf>,
    pub(crate) transaction_pooler: Option<bool>,
    pub(crate) roles: Option<Vec<String>>,
    pub(crate) region: Option<String>,
    pub(crate) node_name: Option<String>,
    pub(crate) replace_node: Option<bool>,
    pub(crate) lease: Option<Span>,
    pub(crate) drain_timeout: Option<Span>,
    pub(crate) enable_shell: Option<bool>,
    pub(crate) allow_webhook_range: Option<Vec<AddressRange>>,
    pub(crate) egress: Option<EgressKeys>,
    pub(crate) shell: Option<ShellKeys>,
    pub(crate) proxy_auth: Option<ProxyAuthKeys>,
    /// The sections `[[client_cert]]`. The key `client_cert` alone is a setting of commands.
    #[serde(skip)]
    pub(crate) cert_grants: Option<Vec<ClientCertKeys>>,
    pub(crate) slots: Option<u32>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) max_job_share: Option<u8>,
    pub(crate) dns_server: Option<Vec<DnsServer>>,
    pub(crate) history: Option<Span>,
    pub(crate) audit_retention: Option<Span>,
    /// Unparsed. It may contain a token, so no message repeats it.
    pub(crate) audit_stream: Option<String>,
    pub(crate) min_interval: Option<Span>,
    pub(crate) max_jobs: Option<u64>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) log_level: Option<LogLevel>,
    #[serde(skip)]
    pub(super) key_lines: KeyLines,
    /// The user who owns the file.
    #[serde(skip)]
    owner: Option<u32>,
}

/// The lines on which keys are set, for errors that are found after the file was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct KeyLines {
    path: PathBuf,
    lines: BTreeMap<String, usize>,
}

impl KeyLines {
    /// `everytick.toml: line 3: lease`
    pub(super) fn of(&self, key: &str) -> String {
        let line = self.lines.get(key).map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{}: {line}{key}", self.path.display())
    }
}

impl File {
    /// Reads `named`, which must exist, or else `everytick.toml` in the working directory, if it exists.
    pub(crate) fn load(named: Option<&Path>) -> anyhow::Result<Self> {
        let path = named.unwrap_or(Path::new(FILE_DEFAULT));
        match read(path) {
            Ok((text, owner)) => {
                let mut file = Self::parse(&text).map_err(|wrong| {
                    let lines: Vec<String> = wrong.iter().map(|line| format!("{}: {line}", path.display())).collect();
                    Failure::usage(lines.join("\n"))
                })?;
                file.key_lines.path = path.to_owned();
                file.owner = Some(owner);
                Ok(file)
            }
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => {
                let variable = "EVERYTICK_CONFIG";
                let is_variable = std::env::var_os(variable).is_some_and(|value| value == path.as_os_str());
                let named = match named {
                    Some(_) if is_variable => format!("{variable}: "),
                    Some(_) => "--config: ".to_owned(),
                    None => String::new(),
                };
                Err(Failure::usage(format!("{named}could not read {}: {}", path.display(), os_error(&error))).into())
            }
        }
    }

    /// The file that was read.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.owner.map(|_| self.key_lines.path.as_path())
    }

    /// Refuses a file of another user than this one or root: its owner could run commands as this user, or redirect the node.
    pub(crate) fn check_owner(&self) -> Result<(), Failure> {
        let own = rustix::process::geteuid().as_raw();
        match self.owner.filter(|owner| ![own, ROOT].contains(owner)) {
            None => Ok(()),
            Some(owner) => Err(Failure::usage(format!(
                "{}: the file belongs to the user with the id {owner}; it must belong to the user of the server ({own}) or to root",
                self.key_lines.path.display()
            ))),
        }
    }

    /// Removes the settings of client commands, and returns a warning for each. Called for the file in the working directory:
    /// its author, perhaps another user, could otherwise choose the server that receives the user's token.
    pub(crate) fn ignore_client_keys(&mut self) -> Vec<String> {
        let ignored = [
            ("server", self.server.take().is_some()),
            ("ca_file", self.ca_file.take().is_some()),
            ("client_cert", self.client_cert.take().is_some()),
            ("client_key", self.client_key.take().is_some()),
            ("output", self.output.take().is_some()),
            ("utc", self.utc.take().is_some()),
        ];
        let warning = |key: &str| {
            let (flag, at) = (key.replace('_', "-"), self.key_lines.of(key));
            format!("warning: {at} is ignored in the working directory; write --{flag}, or name the file with --config")
        };
        ignored.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| warning(key)).collect()
    }

    /// All errors, one per key.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut table: Table = text.parse().map_err(|error| vec![syntax(text, &error)])?;
        let lines = table.keys().filter_map(|key| Some((key.clone(), line_of(text, key)?))).collect();
        let cert_grants = take_cert_grants(text, &mut table).map_err(|wrong| vec![wrong])?;
        let wrong: Vec<String> = table.iter().filter_map(|(key, value)| refusal(text, key, value)).collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let file = table.try_into().map_err(|error: toml::de::Error| vec![error.message().to_owned()])?;
        Ok(Self { key_lines: KeyLines { path: PathBuf::from(FILE_DEFAULT), lines }, cert_grants, ..file })
    }
}

/// Removes the sections `[[client_cert]]`. The value of the key `client_cert` is a text.
fn take_cert_grants(text: &str, table: &mut Table) -> Result<Option<Vec<ClientCertKeys>>, String> {
    if !table.get(CERT_GRANTS).is_some_and(Value::is_array) {
        return Ok(None);
    }
    let at = line_of(text, CERT_GRANTS).map(|line| format!("line {line}: ")).unwrap_or_default();
    let read = table.remove(CERT_GRANTS).map(Value::try_into).transpose();
    read.map_err(|error: toml::de::Error| {
        format!("{at}[[{CERT_GRANTS}]]: {}", section_error(CERT_GRANTS, error.message()))
    })
}

const CERT_GRANTS: &str = "client_cert";

const ROOT: u32 = 0;

/// The text and the owner of a file. Both come from the same file, even if it is replaced during the call.
fn read(path: &Path) -> io::Result<(String, u32)> {
    let mut file = fs::File::open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((text, file.metadata()?.uid()))
}

/// The number of the line that sets a key, or of the section of this name.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches(['[', '"']);
        line.strip_prefix(key).is_some_and(|rest| {
            rest.trim_start_matches(['"', ']']).trim_start().starts_with(['=', '.']) || rest.starts_with(']')
        })
    };
    text.lines().position(sets).map(|line| line + 1)
}

/// The message does not repeat the line, which may contain a password.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let key = text.lines().nth(line).unwrap_or_default().split(['=', ' ', '"']).next().unwrap_or_default().trim();
    let key = if key.is_empty() { "the line".to_owned() } else { format!("{key:?}") };
    let what = if error.message().contains("duplicate key") {
        "is set twice; remove one of the lines"
    } else {
        "is not written as KEY = VALUE; write a text in double quotes, such as lease = \"15s\", and a list like [\"a\", \"b\"]"
    };
    format!("line {}: {key} {what}", line + 1)
}

/// Why the value of one key is not accepted.
fn refusal(text: &str, key: &str, value: &Value) -> Option<String> {
    let at = line_of(text, key).map(|line| format!("line {line}: ")).unwrap_or_default();
    if SECTIONS.contains(&key) {
        let Value::Table(keys) = value else {
            return Some(format!("{at}{key} is a section; write [{key}] on a line of its own, and its keys below it"));
        };
        // Its keys are checked together, because some are required.
        if key == "proxy_auth" {
            let error = Table::from_iter([(key.to_owned(), value.clone())]).try_into::<File>().err()?;
            return Some(format!("{at}[{key}]: {}", section_error(key, error.message())));
        }
        return keys.iter().find_map(|(inner, value)| section_refusal(text, key, inner, value));
    }
    let settings = settings();
    let Some((_, kind)) = settings.iter().find(|(name, _)| name == key) else {
        let keys = || settings.iter().map(|(name, _)| name.as_str()).chain(SECTIONS);
        return Some(match (value, nearest(key, keys())) {
            (Value::Table(_), Some(meant)) if SECTIONS.contains(&meant) => {
                format!("{at}[{key}] is not a section; did you mean [{meant}]?")
            }
            (Value::Table(_), _) => format!("{at}{key:?} is not a setting; write the keys without the section [{key}]"),
            (_, Some(meant)) => format!("{at}{key:?} is not a setting; did you mean {meant:?}?"),
            (_, None) => {
                let settings = settings.iter().map(|(name, _)| name.clone());
                let all = settings.chain(SECTIONS.map(|section| format!("the section [{section}]")));
                format!("{at}{key:?} is not a setting; the settings are {}", all.collect::<Vec<_>>().join(", "))
            }
        });
    };
    let alone = Table::from_iter([(key.to_owned(), value.clone())]);
    let error = alone.try_into::<File>().err()?;
    let found = serde_json::to_value(value).unwrap_or_default();
    Some(format!("{at}{key}: {}", ReadError::of(error.message()).sentence(Some(&found), &accepts(key, kind))))
}

/// The sections of the file. Their keys have no flags.
const SECTIONS: [&str; 3] = ["egress", "proxy_auth", "shell"];

/// The heading of a section in the settings page.
fn section_anchor(section: &str) -> String {
    if section == CERT_GRANTS { "client-certificates".to_owned() } else { section.replace('_', "-") }
}

/// The message of serde about a key of a section, in words of the file.
fn section_error(section: &str, message: &str) -> String {
    let message = message.trim();
    match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((key, rest)) => {
            let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
            format!("{key:?} is not a key of this section; the keys are {}", known.join(", "))
        }
        None if message.starts_with("invalid type") => {
            format!("has a value of a wrong type; see docs/reference/settings.md#{}", section_anchor(section))
        }
        None => message.to_owned(),
    }
}

/// Why the value of one key of a section is not accepted.
fn section_refusal(text: &str, section: &str, key: &str, value: &Value) -> Option<String> {
    let alone = Table::from_iter([(key.to_owned(), value.clone())]);
    let error = Table::from_iter([(section.to_owned(), Value::Table(alone))]).try_into::<File>().err()?;
    let line = line_in_section(text, section, key).or_else(|| line_of(text, section));
    let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    let message = error.message().trim();
    if let Some((_, rest)) = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        return Some(format!(
            "{at}[{section}]: {key:?} is not a key of this section; the keys are {}",
            known.join(", ")
        ));
    }
    let found = serde_json::to_value(value).unwrap_or_default();
    let accepts = match key {
        "https_only" | "proxy_resolves" | "scripts" | "systemd_run" => Accepts::YesNo,
        "allow" => Accepts::List { example: Some("[\"/opt/jobs/*\"]".to_owned()) },
        "groups" => Accepts::List { example: Some("[\"jobs\"]".to_owned()) },
        "user" | "home" | "cgroup" => Accepts::Text { example: None },
        "proxy" => Accepts::Text { example: Some("\"http://proxy.example.org:3128\"".to_owned()) },
        "ports" => Accepts::List { example: Some("[443, \"1024-65535\"]".to_owned()) },
        "hosts" => Accepts::List { example: Some("[\"*.example.org\"]".to_owned()) },
        _ => Accepts::List { example: Some("[\"10.0.0.0/8\"]".to_owned()) },
    };
    Some(format!("{at}[{section}] {key}: {}", ReadError::of(message).sentence(Some(&found), &accepts)))
}

/// The number of the line that sets a key of a section.
fn line_in_section(text: &str, section: &str, key: &str) -> Option<usize> {
    let header = format!("[{section}]");
    let after = text.lines().position(|line| line.trim() == header)? + 1;
    let inside = text.lines().enumerate().skip(after).take_while(|(_, line)| !line.trim_start().starts_with('['));
    let sets = |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    inside.filter(|(_, line)| sets(line)).map(|(at, _)| at + 1).next()
}

/// The keys, each with the word that the help shows for its value.
fn settings() -> Vec<(String, String)> {
    let (serve, cli) = (ServeFlags::augment_args(clap::Command::new("serve")), Cli::command());
    let of_all = cli.get_arguments().filter(|arg| !["config", "help", "version"].contains(&arg.get_id().as_str()));
    let all = serve.get_arguments().chain(of_all);
    all.map(|arg| {
        let word = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        (arg.get_id().to_string(), word.unwrap_or_default())
    })
    .collect()
}

fn accepts(key: &str, word: &str) -> Accepts {
    let list = |example: &str| Accepts::List { example: Some(example.to_owned()) };
    match (key, word) {
        ("roles", _) => list("[\"api\"]"),
        ("allow_host", _) => list("[\"jobs.example.org\"]"),
        ("secret_key_files", _) => list("[\"/etc/everytick/secret.key\"]"),
        ("allow_webhook_range", _) => list("[\"10.0.0.0/8\"]"),
        ("dns_server", _) => list("[\"10.0.0.53:53\"]"),
        ("max_job_share", _) => Accepts::Whole { min: Some(1), max: Some(100) },
        (_, "N") => Accepts::Whole { min: Some(1), max: None },
        (_, "DURATION") => Accepts::Duration,
        (_, "BOOL") => Accepts::YesNo,
        ("auth", _) => Accepts::Text { example: Some("\"required\"".to_owned()) },
        ("listen", _) => Accepts::Text { example: Some("\"127.0.0.1:8640\"".to_owned()) },
        ("metrics_listen", _) => Accepts::Text { example: Some("\"127.0.0.1:9640\"".to_owned()) },
        ("public_url", _) => Accepts::Text { example: Some("\"https://jobs.example.org\"".to_owned()) },
        ("audit_stream", _) => Accepts::Text { example: Some("\"file:/var/log/everytick/audit.ndjson\"".to_owned()) },
        _ => Accepts::Text { example: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_line_the_key_the_value_and_the_remedy() {
        for (text, parts) in [
            ("lisen = \"x\"", &["line 1", "\"lisen\"", "did you mean \"listen\"?"][..]),
            ("\nzzzzz = 1", &["line 2", "\"zzzzz\"", "drain_timeout"]),
            ("[serve]\nlease = \"15s\"", &["line 1", "without the section [serve]"]),
            ("lease = 15", &["line 1", "lease: 15", "\"15s\""]),
            ("lease = \"fast\"", &["lease: \"fast\"", "\"90s\""]),
            ("lease = true", &["lease: true", "\"90s\""]),
            ("history = [\"90d\"]", &["history: a list", "\"7d\""]),
            ("[egress]\nhost = [\"a\"]", &["line 2", "[egress]", "\"host\" is not a key", "https_only"]),
            ("[egress]\nports = [0]", &["line 2: [egress] ports", "not a port"]),
            ("[egress]\nports = [443, 99999]", &["line 2: [egress] ports", "\"99999\" is not a port", "1024-65535"]),
            ("[egress]\nports = [true]", &["line 2: [egress] ports", "not a port", "1024-65535"]),
            ("[egress]\n\nports = \"443\"", &["line 3: [egress] ports: \"443\" is not a list", "[443, "]),
            ("[egress]\nhosts = [\"https://a\"]", &["line 2: [egress] hosts", "is not a host"]),
            ("[egress]\nhttps_only = 1", &["line 2: [egress] https_only: 1", "true or false"]),
            ("[egress]\nhttps_only = \"x\"", &["line 2: [egress] https_only: \"x\"", "true or false"]),
            ("[egress]\nproxy = 5", &["line 2: [egress] proxy: 5 is not a text"]),
            ("[egress]\nproxy_resolves = []", &["line 2: [egress] proxy_resolves", "true or false"]),
            ("[egress]\ndeny_ranges = [\"x\"]", &["line 2: [egress] deny_ranges: \"x\"", "10.0.0.0/8"]),
            ("[egres]\nports = [1]", &["line 1: [egres]", "did you mean [egress]?"]),
            ("egress = 5", &["line 1: egress is a section", "write [egress]"]),
            ("\nquux = 1", &["line 2", "the section [egress]"]),
            ("[shell]\nusr = \"a\"", &["line 2", "[shell]", "\"usr\" is not a key", "systemd_run"]),
            ("[shell]\nallow = [\"jobs\"]", &["line 2: [shell] allow", "is not an absolute path"]),
            ("[shell]\nscripts = 1", &["line 2: [shell] scripts: 1", "true or false"]),
            ("[proxy_auth]\ntrust = []", &["line 1", "[proxy_auth]", "\"trust\" is not a key", "user_header"]),
            ("[proxy_auth]\n[[proxy_auth.grants]]\nrole = \"admin\"", &["[proxy_auth]", "missing field `group`"]),
            ("\n[[client_cert]]\nsen = \"a\"", &["line 2", "[[client_cert]]", "\"sen\" is not a key", "san"]),
            ("[[client_cert]]\nsan = 1\nrole = \"admin\"", &["[[client_cert]]", "wrong type"]),
            ("slots = \"many\"", &["slots: \"many\"", "a number from 1"]),
            ("slots = \"5\"", &["slots: \"5\"", "without quotes: 5"]),
            ("slots = -1", &["slots: -1", "a number from 1"]),
            ("max_job_share = 300", &["max_job_share: 300", "1 to 100"]),
            ("enable_shell = \"yes\"", &["enable_shell: \"yes\"", "true or false"]),
            ("enable_shell = \"true\"", &["enable_shell: \"true\"", "without quotes"]),
            ("roles = \"api\"", &["roles: \"api\"", "[\"api\"]"]),
            ("allow_webhook_range = \"10.0.0.0/8\"", &["allow_webhook_range", "[\"10.0.0.0/8\"]"]),
            ("allow_webhook_range = [10]", &["allow_webhook_range: 10 in the list is not a text", "[\"10.0.0.0/8\"]"]),
            ("roles = [\"api\", true]", &["roles: true in the list is not a text", "[\"api\"]"]),
            ("allow_webhook_range = [\"10.0.0.0/99\"]", &["allow_webhook_range: \"10.0.0.0/99\"", "10.0.0.0/8"]),
            ("dns_server = [\"dns\"]", &["dns_server: \"dns\"", "10.0.0.53:53"]),
            ("listen = \"here\"", &["listen: \"here\"", "127.0.0.1:8640"]),
            ("listen = 8640", &["listen: 8640", "\"8640\""]),
            ("listen = [\"localhost:1\", \"here\"]", &["listen: \"here\"", "127.0.0.1:8640"]),
            ("allow_host = \"h\"", &["allow_host: \"h\"", "[\"jobs.example.org\"]"]),
            ("allow_host = [\"https://h\"]", &["allow_host: \"https://h\"", "without a scheme"]),
            ("public_url = \"jobs\"", &["public_url: \"jobs\"", "https://jobs.example.org"]),
            ("tls_client_auth = \"require\"", &["tls_client_auth", "did you mean \"required\"?"]),
            ("log_format = \"xml\"", &["log_format: \"xml\"", "text, json"]),
            ("output = \"tabel\"", &["output: \"tabel\"", "did you mean \"table\"?"]),
            ("log_level = \"loud=very\"", &["log_level", "loud=very", "write error, warn"]),
            ("lease = 15s", &["line 1", "\"lease\"", "double quotes"]),
            ("a = 1\nlease \"15s\"", &["line 2", "\"lease\"", "KEY = VALUE"]),
            ("lease = \"15s", &["line 1", "\"lease\"", "double quotes"]),
            ("lease = \"15s\"\nlease = \"20s\"", &["line 2", "\"lease\"", "twice"]),
        ] {
            let message = File::parse(text).unwrap_err().join("\n");
            for part in parts {
                assert!(message.contains(part), "{text}: {part}: {message}");
            }
            for foreign in
                ["TOML", "expected", "invalid type", "u32", "unknown field", "sequence", "untagged", "variant"]
            {
                assert!(!message.contains(foreign), "{text}: {message}");
            }
        }
        let secret = File::parse("database_url = postgres://me:hunter2@h/d").unwrap_err().join("\n");
        assert!(!secret.contains("hunter2"), "{secret}");
        assert_eq!(File::parse("slots = \"a\"\nlease = 1").unwrap_err().len(), 2, "all errors are listed");
    }
}
