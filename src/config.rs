//! Resolves settings: a flag, else its `EVERYTICK_*` variable, else its key in `everytick.toml`, else the default.
//! Clap merges flags and variables. This file adds the settings file and the defaults, and refuses values that this
//! release does not support.

mod address;
mod audit_stream;
mod database;
mod egress;
mod exposure;
mod file;
mod grants;
mod secret_keys;
mod shell;
mod tls;

use std::{collections::BTreeSet, fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use everytick_api::{AllowedHost, CertGrant, ClientAuth, ProxyAuth, PublicUrl, TlsFiles};
use everytick_domain::{
    access::{LIFETIME_MAX_DEFAULT, LifetimePolicy},
    home::check_region,
    schedule::EVERY_MIN,
    time::Span,
};
use everytick_store::Limits;
use ipnet::IpNet;
use serde::Deserialize;

use exposure::{Lack, Protection, lack};

use crate::{
    cli::serve::ServeFlags,
    failure::Failure,
    logging::{LogFormat, LogLevel},
};

pub(crate) use address::{AddressRange, DnsServer, Listen, ListenKey};
pub(crate) use audit_stream::AuditStream;
pub(crate) use database::{DatabaseSource, DatabaseUrl, database};
pub(crate) use egress::{Egress, EgressKeys};
pub(crate) use file::File;
use file::KeyLines;
use grants::cert_grants;
pub(crate) use grants::{ClientCertKeys, ProxyAuthKeys};
pub(crate) use secret_keys::{InlineSecrets, read_keys};
pub(crate) use shell::{Shell, ShellKeys};
pub(crate) use tls::{TlsClientAuth, TlsSettings};

pub(crate) const FILE_DEFAULT: &str = "everytick.toml";
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:8640";

const LEASE_RANGE: (Span, Span) = (Span::seconds(2), Span::minutes(10));
const TOKEN_TTL_RANGE: (Span, Span) = (Span::hours(1), LIFETIME_MAX_DEFAULT);
const DRAIN_MAX: Span = Span::hours(1);
const HISTORY_MIN: Span = Span::hours(1);
const AUDIT_RETENTION_MIN: Span = Span::days(1);
const MIN_INTERVAL_MAX: Span = Span::days(1);
const SLOTS_MAX: u32 = 10_000;
const MAX_CONNECTIONS_MAX: u32 = 1_000_000;
const MAX_JOBS_MAX: u64 = 1_000_000_000;
const NODE_NAME_BYTES_MAX: usize = 128;

/// All settings of `everytick serve`, complete and validated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) listen: Vec<Listen>,
    /// Where metrics are served without a credential.
    pub(crate) metrics_listen: Option<Listen>,
    /// The certificate of the TCP listeners; `None` for plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    /// The URL under which clients reach the API, for example through a proxy.
    pub(crate) public_url: Option<PublicUrl>,
    /// Further names that the `Host` of a request may have.
    pub(crate) allow_host: Vec<AllowedHost>,
    pub(crate) auth: Auth,
    /// The proxy that authenticates users.
    pub(crate) proxy_auth: Option<ProxyAuth>,
    /// The grants of client certificates.
    pub(crate) cert_grants: Vec<CertGrant>,
    /// Contains the first token.
    pub(crate) bootstrap_token_file: Option<PathBuf>,
    /// Longest lifetime of a token.
    pub(crate) token_ttl_max: Span,
    pub(crate) allow_tokens_without_expiry: bool,
    /// The files of the operator keys that encrypt secrets. The first encrypts, all decrypt.
    pub(crate) secret_key_files: Vec<PathBuf>,
    /// Whether jobs may contain new credentials that are not references to secrets.
    pub(crate) inline_secrets: InlineSecrets,
    pub(crate) database: DatabaseUrl,
    /// The connection to PostgreSQL goes through a transaction pooler.
    pub(crate) transaction_pooler: bool,
    pub(crate) roles: Roles,
    pub(crate) region: Option<String>,
    pub(crate) node_name: String,
    /// Replace a live process that has the same node name.
    pub(crate) replace_node: bool,
    pub(crate) lease: Span,
    pub(crate) drain_timeout: Span,
    pub(crate) enable_shell: bool,
    /// What commands may be and do; `None` without the section.
    pub(crate) shell: Option<Shell>,
    pub(crate) allow_webhook_ranges: Vec<IpNet>,
    /// Where webhooks may go.
    pub(crate) egress: Egress,
    /// Limit of runs in progress on this node.
    pub(crate) slots: u32,
    /// Limit of API connections. `None`: derived from the open-file limit.
    pub(crate) max_connections: Option<u32>,
    /// Percentage of the slots that one job may use.
    pub(crate) max_job_share: u8,
    /// DNS servers that resolve webhook hosts. Empty: the system's servers.
    pub(crate) dns_servers: Vec<SocketAddr>,
    /// Ended runs are deleted after this long.
    pub(crate) history: Span,
    /// Rows of the audit trail are deleted after this long.
    pub(crate) audit_retention: Span,
    /// Receives the audit trail while this node is the leader.
    pub(crate) audit_stream: Option<AuditStream>,
    /// Shortest allowed distance between two ticks of one job.
    pub(crate) min_interval: Span,
    /// Limit of jobs per tenant.
    pub(crate) max_jobs: u64,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
    pub(crate) named: Named,
}

impl Settings {
    /// A message that begins with a flag, with the line of the settings file instead if the value comes from there.
    pub(crate) fn by_source(&self, message: &str) -> String {
        self.named.by_source(message)
    }

    pub(crate) fn resolve(flags: ServeFlags, mut file: File) -> Result<Self, Failure> {
        let flags_source = DatabaseSource { url: flags.database_url, url_file: flags.database_url_file };
        let database = database(flags_source, flags.data_dir, &file)?;
        let mut named = Named { key_lines: std::mem::take(&mut file.key_lines), from_file: BTreeSet::new() };
        let roles = {
            let roles = named.pick("roles", flags.roles, file.roles).unwrap_or_default();
            Roles::read(&roles, &named.of("roles"))?
        };
        let region = named.pick("region", flags.region, file.region);
        if let Some(region) = &region {
            check_region(region).map_err(|wrong| Failure::usage(format!("{}: {wrong}", named.of("region"))))?;
        }
        let from_variable = std::env::var_os("EVERYTICK_AUTH").is_some_and(|value| value == Auth::Open.word());
        if file.auth == Some(Auth::Open) || from_variable {
            let named = if from_variable { "EVERYTICK_AUTH".to_owned() } else { named.key_lines.of("auth") };
            return Err(Failure::usage(format!(
                "{named}: open is accepted only on the command line (--auth open), where the list of processes shows it"
            )));
        }
        let auth = named.pick("auth", flags.auth, file.auth).unwrap_or_default();
        let listen = named.pick("listen", flags.listen, file.listen.map(|key| key.0));
        let listen = listen.unwrap_or_else(|| vec![Listen::default()]);
        let tls = TlsSettings {
            cert: named.pick("tls_cert", flags.tls_cert, file.tls_cert),
            key: named.pick("tls_key", flags.tls_key, file.tls_key),
            client_ca: named.pick("tls_client_ca", flags.tls_client_ca, file.tls_client_ca),
            client_auth: named.pick("tls_client_auth", flags.tls_client_auth, file.tls_client_auth),
        };
        let tls = tls.files().map_err(|wrong| Failure::usage(named.by_source(&wrong.to_string())))?;
        let public_url = named.pick("public_url", flags.public_url, file.public_url);
        let protection = Protection {
            credentials: auth == Auth::Required,
            tls: tls.is_some(),
            insecure_http: named.pick("insecure_http", flags.insecure_http, file.insecure_http).unwrap_or(false),
            public_url: public_url.is_some(),
        };
        check_listen(&listen, protection, &named.of("listen"))?;
        let node_name = match named.pick("node_name", flags.node_name, file.node_name) {
            Some(name) => name,
            // Several nodes of a cluster may run on one host, and each needs its own name.
            None => match (first_port(&listen), &database) {
                (Some(port), DatabaseUrl::Postgres(_)) => format!("{}:{port}", host_name()),
                _ => host_name(),
            },
        };
        let wrong_egress = |wrong: String| Failure::usage(format!("{}: {wrong}", named.key_lines.of("egress")));
        let egress = file.egress.take().map(Egress::try_from).transpose().map_err(wrong_egress)?.unwrap_or_default();
        let wrong_shell = |wrong: String| Failure::usage(format!("{}: {wrong}", named.key_lines.of("shell")));
        let shell = file.shell.take().map(Shell::try_from).transpose().map_err(wrong_shell)?;
        let wrong_proxy = |wrong: String| Failure::usage(format!("{}: {wrong}", named.key_lines.of("proxy_auth")));
        let proxy_auth = file.proxy_auth.take().map(ProxyAuthKeys::read).transpose().map_err(wrong_proxy)?;
        let wrong_cert = |wrong: String| Failure::usage(format!("{}: {wrong}", named.key_lines.of("client_cert")));
        let cert_grants = file.cert_grants.take().map(cert_grants).transpose().map_err(wrong_cert)?.unwrap_or_default();
        if !cert_grants.is_empty() && tls.as_ref().is_none_or(|tls| tls.client_auth == ClientAuth::None) {
            let wrong = "without --tls-client-ca and --tls-client-auth no client shows a certificate; write both";
            return Err(wrong_cert(wrong.to_owned()));
        }
        let webhook_ranges =
            named.pick("allow_webhook_range", flags.allow_webhook_range, file.allow_webhook_range).unwrap_or_default();
        let dns_servers = named.pick("dns_server", flags.dns_server, file.dns_server).unwrap_or_default();
        let audit_stream = named.pick("audit_stream", flags.audit_stream, file.audit_stream);
        let wrong_stream = |wrong: String| Failure::usage(format!("{}: {wrong}", named.of("audit_stream")));
        let audit_stream = audit_stream.map(|text| text.parse::<AuditStream>()).transpose().map_err(wrong_stream)?;
        let mut settings = Self {
            listen,
            metrics_listen: named.pick("metrics_listen", flags.metrics_listen, file.metrics_listen),
            tls,
            public_url,
            allow_host: named.pick("allow_host", flags.allow_host, file.allow_host).unwrap_or_default(),
            auth,
            proxy_auth,
            cert_grants,
            bootstrap_token_file: named.pick(
                "bootstrap_token_file",
                flags.bootstrap_token_file,
                file.bootstrap_token_file,
            ),
            token_ttl_max: named
                .pick("token_ttl_max", flags.token_ttl_max, file.token_ttl_max)
                .unwrap_or(LIFETIME_MAX_DEFAULT),
            allow_tokens_without_expiry: named
                .pick(
                    "allow_tokens_without_expiry",
                    flags.allow_tokens_without_expiry,
                    file.allow_tokens_without_expiry,
                )
                .unwrap_or(false),
            secret_key_files: named
                .pick("secret_key_files", flags.secret_key_files, file.secret_key_files)
                .unwrap_or_default(),
            inline_secrets: named.pick("inline_secrets", flags.inline_secrets, file.inline_secrets).unwrap_or_default(),
            database,
            transaction_pooler: named
                .pick("transaction_pooler", flags.transaction_pooler, file.transaction_pooler)
                .unwrap_or(false),
            roles,
            region,
            node_name,
            replace_node: named.pick("replace_node", flags.replace_node, file.replace_node).unwrap_or(false),
            lease: named.pick("lease", flags.lease, file.lease).unwrap_or(Span::seconds(15)),
            drain_timeout: named
                .pick("drain_timeout", flags.drain_timeout, file.drain_timeout)
                .unwrap_or(Span::seconds(30)),
            enable_shell: named.pick("enable_shell", flags.enable_shell, file.enable_shell).unwrap_or(false),
            shell,
            egress,
            allow_webhook_ranges: webhook_ranges.into_iter().map(|range| range.0).collect(),
            slots: named.pick("slots", flags.slots, file.slots).unwrap_or(1_000),
            max_connections: named.pick("max_connections", flags.max_connections, file.max_connections),
            max_job_share: named.pick("max_job_share", flags.max_job_share, file.max_job_share).unwrap_or(25),
            dns_servers: dns_servers.into_iter().map(|server| server.0).collect(),
            history: named.pick("history", flags.history, file.history).unwrap_or(Span::days(90)),
            audit_retention: named
                .pick("audit_retention", flags.audit_retention, file.audit_retention)
                .unwrap_or(Span::days(400)),
            audit_stream,
            min_interval: named.pick("min_interval", flags.min_interval, file.min_interval).unwrap_or(EVERY_MIN),
            max_jobs: named
                .pick("max_jobs", flags.max_jobs, file.max_jobs)
                .unwrap_or(Limits::default().jobs_per_tenant_max),
            log_format: named.pick("log_format", flags.log_format, file.log_format).unwrap_or_default(),
            log_level: named.pick("log_level", flags.log_level, file.log_level).unwrap_or_default(),
            named: Named::default(),
        };
        settings.check(&named)?;
        settings.named = named;
        Ok(settings)
    }

    /// The limits for new tokens.
    pub(crate) const fn lifetimes(&self) -> LifetimePolicy {
        LifetimePolicy { max: self.token_ttl_max, allow_unlimited: self.allow_tokens_without_expiry }
    }

    fn check(&self, named: &Named) -> Result<(), Failure> {
        let check = |is_valid: bool, flag: &str, value: &dyn fmt::Display, range: String| {
            if is_valid {
                Ok(())
            } else {
                Err(Failure::usage(format!("{}: {value} is out of range; allowed: {range}", named.of(flag))))
            }
        };
        if matches!(self.database, DatabaseUrl::Sqlite(_)) && self.roles != Roles::ALL {
            return Err(Failure::usage(format!(
                "{}: a SQLite file is opened by one process, which needs all three roles; \
                 to split roles, let the nodes share a PostgreSQL database (--database-url postgres://...)",
                named.of("roles")
            )));
        }
        let (low, high) = LEASE_RANGE;
        check((low..=high).contains(&self.lease), "lease", &self.lease, format!("{low} to {high}"))?;
        check(self.drain_timeout <= DRAIN_MAX, "drain_timeout", &self.drain_timeout, format!("up to {DRAIN_MAX}"))?;
        let (low, high) = (EVERY_MIN, MIN_INTERVAL_MAX);
        check(
            (low..=high).contains(&self.min_interval),
            "min_interval",
            &self.min_interval,
            format!("{low} to {high}"),
        )?;
        check(self.history >= HISTORY_MIN, "history", &self.history, format!("{HISTORY_MIN} or more"))?;
        check(
            self.audit_retention >= AUDIT_RETENTION_MIN,
            "audit_retention",
            &self.audit_retention,
            format!("{AUDIT_RETENTION_MIN} or more"),
        )?;
        let (low, high) = TOKEN_TTL_RANGE;
        check(
            (low..=high).contains(&self.token_ttl_max),
            "token_ttl_max",
            &self.token_ttl_max,
            format!("{low} to {high}"),
        )?;
        check((1..=MAX_JOBS_MAX).contains(&self.max_jobs), "max_jobs", &self.max_jobs, format!("1 to {MAX_JOBS_MAX}"))?;
        check((1..=SLOTS_MAX).contains(&self.slots), "slots", &self.slots, format!("1 to {SLOTS_MAX}"))?;
        if let Some(max) = self.max_connections {
            let range = format!("1 to {MAX_CONNECTIONS_MAX}");
            check((1..=MAX_CONNECTIONS_MAX).contains(&max), "max_connections", &max, range)?;
        }
        let share = self.max_job_share;
        check((1..=100).contains(&share), "max_job_share", &share, "1 to 100 (percent)".to_owned())?;
        let name = &self.node_name;
        // Each delivery sends the name in a header.
        if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::usage(format!(
                "{}: {name:?} is not a node name; write 1 to {NODE_NAME_BYTES_MAX} visible ASCII characters without spaces",
                named.of("node_name")
            )));
        }
        Ok(())
    }
}

/// Names settings as the user wrote them: the flag, or the file, the line and the key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Named {
    key_lines: KeyLines,
    from_file: BTreeSet<&'static str>,
}

impl Named {
    /// The value of the flag or variable, else that of the file.
    fn pick<T>(&mut self, key: &'static str, flag: Option<T>, file: Option<T>) -> Option<T> {
        if flag.is_none() && file.is_some() {
            self.from_file.insert(key);
        }
        flag.or(file)
    }

    fn by_source(&self, message: &str) -> String {
        for key in &self.from_file {
            let rest = message.strip_prefix(&format!("--{}", key.replace('_', "-")));
            if let Some(rest) = rest.filter(|rest| rest.starts_with([':', ' '])) {
                return format!("{}{rest}", self.key_lines.of(key));
            }
        }
        message.to_owned()
    }

    fn of(&self, key: &str) -> String {
        if self.from_file.contains(key) { self.key_lines.of(key) } else { format!("--{}", key.replace('_', "-")) }
    }
}

/// Whether requests need a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Auth {
    /// Once a token exists, and with `--enable-shell`.
    #[default]
    Auto,
    Required,
    Open,
}

impl Auth {
    const ALL: [Self; 3] = [Self::Auto, Self::Required, Self::Open];

    const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Open => "open",
        }
    }
}

impl FromStr for Auth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|auth| auth.word() == text);
        found.ok_or_else(|| format!("{text:?} is not a mode; write auto, required or open"))
    }
}

impl TryFrom<String> for Auth {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The roles of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Roles {
    /// Serves the API. Without this role the node serves only health and metrics.
    pub(crate) api: bool,
    /// Records the ticks of the partitions that it owns, and delivers their runs (scheduler and dispatcher).
    pub(crate) runs_jobs: bool,
}

impl Roles {
    pub(crate) const ALL: Self = Self { api: true, runs_jobs: true };

    const NAMES: [&str; 3] = ["api", "scheduler", "dispatcher"];

    pub(crate) fn names(self) -> Vec<&'static str> {
        let has = [self.api, self.runs_jobs, self.runs_jobs];
        Self::NAMES.into_iter().zip(has).filter_map(|(name, has)| has.then_some(name)).collect()
    }

    fn read(roles: &[String], name: &str) -> Result<Self, Failure> {
        if roles.is_empty() {
            return Ok(Self::ALL);
        }
        if let Some(unknown) = roles.iter().find(|role| !Self::NAMES.contains(&role.as_str())) {
            return Err(Failure::usage(format!(
                "{name}: {unknown:?} is not a role; the roles are {}",
                Self::NAMES.join(", ")
            )));
        }
        let [api, scheduler, dispatcher] = Self::NAMES.map(|role| roles.iter().any(|given| given == role));
        if scheduler != dispatcher {
            return Err(Failure::usage(format!(
                "{name}: scheduler and dispatcher go together, because the node that owns a partition also starts its \
                 runs; write api, or scheduler,dispatcher, or all three"
            )));
        }
        Ok(Self { api, runs_jobs: scheduler })
    }
}

fn check_listen(listen: &[Listen], protection: Protection, name: &str) -> Result<(), Failure> {
    if listen.is_empty() {
        return Err(Failure::usage(format!("{name}: the list is empty; write at least one address")));
    }
    let lacking = listen.iter().find_map(|listen| Some((listen, lack(listen, protection)?)));
    let Some((listen, lack)) = lacking else { return Ok(()) };
    let remedy = match lack {
        Lack::Credentials => {
            ", so every request needs a token: write --auth required, and create the first token with `everytick token create \
             first --role admin --data-dir DIR` (or --database-url URL) before the start; or listen on 127.0.0.1 or [::1]"
        }
        Lack::Encryption => {
            ": others on the network could read tokens and payloads; write --tls-cert and --tls-key, or --insecure-http"
        }
        Lack::PublicUrl => ": write the URL of its clients with --public-url, such as https://jobs.example.org",
    };
    Err(Failure::usage(format!("{name}: {listen} is not a loopback address{remedy}")))
}

fn first_port(listen: &[Listen]) -> Option<u16> {
    listen.iter().find_map(|one| match one {
        Listen::Tcp(address) => Some(address.port()),
        Listen::Unix(_) => None,
    })
}

pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::{Args, CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    #[derive(Parser)]
    struct Serve {
        #[command(flatten)]
        flags: ServeFlags,
    }

    fn resolve(flags: &[&str], file: &str) -> Result<Settings, String> {
        let flags = Serve::try_parse_from([&["serve"], flags].concat()).map_err(|error| error.to_string())?.flags;
        let file = File::parse(file).map_err(|wrong| wrong.join("\n"))?;
        Settings::resolve(flags, file).map_err(|failure| failure.to_string())
    }

    #[test]
    fn settings_have_the_documented_defaults() {
        let settings = resolve(&["--node-name", "n"], "").unwrap();
        assert_eq!(settings.listen, [Listen::default()]);
        assert_eq!(settings.listen[0].to_string(), "127.0.0.1:8640");
        assert_eq!(settings.database, DatabaseUrl::Sqlite("./everytick-data/everytick.db".into()));
        assert_eq!((settings.lease, settings.drain_timeout), (Span::seconds(15), Span::seconds(30)));
        assert_eq!((settings.slots, settings.history, settings.enable_shell), (1_000, Span::days(90), false));
        assert_eq!(settings.max_jobs, 100_000);
    }

    #[test]
    fn a_flag_overrides_the_file_and_the_file_overrides_the_default() {
        let file = "lease = \"20s\"\nslots = 7\nenable_shell = true\nallow_webhook_range = [\"10.0.0.0/8\"]";
        let settings = resolve(&["--lease", "30s", "--enable-shell=false"], file).unwrap();
        assert_eq!((settings.lease, settings.slots, settings.enable_shell), (Span::seconds(30), 7, false));
        assert_eq!(settings.allow_webhook_ranges, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(settings.drain_timeout, Span::seconds(30));
    }

    #[test]
    fn a_file_may_contain_the_database_url_and_a_flag_overrides_the_settings_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (good, bad) = (file("good", "postgres://me:hunter2@h/d\n"), file("bad", "mysql://u:hunter2@h/d"));
        let url = |flags: &[&str], toml: &str| resolve(flags, toml).map(|settings| settings.database);
        let postgres = DatabaseUrl::Postgres("postgres://me:hunter2@h/d".to_owned());
        assert_eq!(url(&["--database-url-file", &good], "database_url = \"sqlite:a.db\""), Ok(postgres.clone()));
        assert_eq!(url(&[], &format!("database_url_file = {good:?}")), Ok(postgres));
        let flag = url(&["--database-url", "sqlite:a.db"], &format!("database_url_file = {good:?}"));
        assert_eq!(flag, Ok(DatabaseUrl::Sqlite("a.db".into())));
        let long = file("long", &"x".repeat(20_000));
        for (flags, expected) in [
            (&["--database-url-file", "/no/such/file"][..], "/no/such/file could not be read"),
            (&["--database-url-file", &bad], "is not a database URL"),
            (&["--database-url-file", &long], "is longer than 16384 bytes"),
            (&["--database-url-file", &good, "--database-url", "sqlite:a.db"], "set only one of them"),
        ] {
            let message = url(flags, "").unwrap_err();
            assert!(message.contains(expected) && message.contains("--database-url-file"), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn the_section_egress_has_the_rules_for_webhooks() {
        let text = "[egress]\nallow_ranges = [\"10.2.0.0/16\"]\ndeny_ranges = [\"10.2.0.1\"]\nhosts = [\"*.example.org\"]\n\
                    ports = [443, \"8000-8999\"]\nhttps_only = true\nproxy = \"http://me:pw@proxy:3128\"\nproxy_resolves = true";
        let egress = resolve(&[], text).unwrap().egress;
        assert_eq!(egress.allow_ranges, ["10.2.0.0/16".parse().unwrap()]);
        assert_eq!(egress.deny_ranges, ["10.2.0.1/32".parse().unwrap()]);
        let ports: Vec<String> = egress.policy.ports.iter().map(ToString::to_string).collect();
        assert_eq!((ports, egress.policy.https_only), (vec!["443".to_owned(), "8000-8999".to_owned()], true));
        assert!(!format!("{egress:?}").contains("pw"), "{egress:?}");
        assert_eq!(resolve(&[], "").unwrap().egress, Egress::default());
    }

    #[test]
    fn the_section_proxy_auth_names_the_trusted_proxies_and_the_grants() {
        let grant = "[[proxy_auth.grants]]\ngroup = \"ops\"\ntenant = \"default\"\nrole = \"operator\"\n";
        let read = |keys: &str, grants: &str| resolve(&[], &format!("[proxy_auth]\n{keys}\n{grants}"));
        let proxy = read("trusted = [\"10.0.0.5/32\", \"fd00::5\", \"unix\"]", grant).unwrap().proxy_auth.unwrap();
        assert_eq!((proxy.user_header.as_str(), proxy.groups_header.as_str()), ("remote-user", "remote-groups"));
        assert_eq!(proxy.trusted.networks, ["10.0.0.5/32".parse().unwrap(), "fd00::5/128".parse().unwrap()]);
        assert_eq!((proxy.trusted.unix, proxy.grants[0].group.as_str()), (true, "ops"));
        let trusted = "trusted = [\"unix\"]";
        for (keys, grants, part) in [
            ("", grant, "trusted is missing or empty"),
            ("trusted = []", grant, "trusted is missing or empty"),
            ("trusted = [\"0.0.0.0/0\"]", grant, "every address"),
            ("trusted = [\"::/0\"]", grant, "every address"),
            ("trusted = [\"proxy\"]", grant, "\"proxy\" is not a network"),
            (trusted, "", "grants: 0 rules"),
            ("trusted = [\"unix\"]\nuser_header = \"Authorization\"", grant, "user_header"),
            ("trusted = [\"unix\"]\nuser_header = \"a b\"", grant, "user_header"),
            ("trusted = [\"unix\"]\ngroups_header = \"Remote-User\"", grant, "groups_header"),
            (trusted, "[[proxy_auth.grants]]\ngroup = \"ops\"\nrole = \"operator\"", "grants: rule 1: tenant"),
            (
                trusted,
                "[[proxy_auth.grants]]\ngroup = \"a\"\ntenant = \"default\"\nrole = \"root\"",
                "\"root\" is not a role",
            ),
        ] {
            let message = read(keys, grants).unwrap_err();
            assert!(message.starts_with("everytick.toml: line 1: proxy_auth: ") && message.contains(part), "{message}");
        }
    }

    #[test]
    fn grants_of_certificates_need_a_listener_that_checks_certificates() {
        let cert = "[[client_cert]]\nsan = \"spiffe://example.org/worker\"\ntenant = \"default\"\nrole = \"viewer\"";
        let tls = ["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a", "--tls-client-auth", "optional"];
        assert_eq!(resolve(&tls, cert).unwrap().cert_grants[0].san, "spiffe://example.org/worker".parse().unwrap());
        for (flags, file, part) in [
            (&tls[..4], cert.to_owned(), "--tls-client-ca"),
            (&[], cert.to_owned(), "--tls-client-ca"),
            (&tls, cert.replace("viewer", "worker"), "rule 1: queues"),
            (&tls, cert.replace("spiffe://example.org/worker", "*.example.org"), "rule 1: san"),
        ] {
            let message = resolve(flags, &file).unwrap_err();
            assert!(
                message.starts_with("everytick.toml: line 1: client_cert: ") && message.contains(part),
                "{message}"
            );
        }
    }

    #[test]
    fn several_listeners_come_from_repeated_flags_a_list_or_one_text() {
        let listen = |flags: &[&str], file: &str| {
            let settings = resolve(flags, file).unwrap();
            settings.listen.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(listen(&["--listen", "localhost:1", "--listen", "unix:a"], ""), ["127.0.0.1:1", "unix:a"]);
        assert_eq!(listen(&["--listen", "localhost:1,unix:/a"], ""), ["127.0.0.1:1", "unix:/a"]);
        assert_eq!(listen(&[], "listen = [\"[::1]:1\", \"unix:/a\"]"), ["[::1]:1", "unix:/a"]);
        assert_eq!(listen(&[], "listen = \"localhost:7\""), ["127.0.0.1:7"]);
        assert_eq!(listen(&["--listen", "unix:/a"], "listen = \"localhost:7\""), ["unix:/a"]);
        assert!(resolve(&[], "listen = []").unwrap_err().contains("at least one address"));
    }

    /// A public promise of the documentation.
    #[test]
    fn every_setting_has_a_flag_a_variable_and_a_key_of_one_name() {
        let serve = ServeFlags::augment_args(clap::Command::new("serve"));
        let cli = Cli::command();
        let settings = serve
            .get_arguments()
            .chain(cli.get_arguments().filter(|arg| !["config", "help", "version"].contains(&arg.get_id().as_str())));
        let mut seen = 0;
        for arg in settings {
            let key = arg.get_id().as_str();
            assert_eq!(arg.get_long(), Some(key.replace('_', "-").as_str()), "{key}");
            let variable = format!("EVERYTICK_{}", key.to_uppercase());
            assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(variable.as_str()), "{key}");
            if let Err(wrong) = File::parse(&format!("{key} = {{}}")) {
                assert!(!wrong.concat().contains("is not a setting"), "{wrong:?}");
            }
            seen += 1;
        }
        assert_eq!(seen, 44);
    }

    #[test]
    fn a_wrong_or_unsupported_value_is_refused_with_the_reason() {
        for (flags, expected) in [
            (["--listen", "0.0.0.0:8640"], "--auth required"),
            (["--auth", "none"], "auto, required or open"),
            (["--token-ttl-max", "367d"], "1h to 366d"),
            (["--listen", "[::]:8640"], "--auth required"),
            (["--listen", "192.168.1.2:8640"], "not a loopback address"),
            (["--listen", "127.0.0.1:8640,10.0.0.1:1"], "10.0.0.1:1 is not a loopback address"),
            (["--tls-cert", "cert.pem"], "write its file with --tls-key"),
            (["--public-url", "jobs.example.org"], "https://jobs.example.org"),
            (["--allow-host", "https://jobs.example.org"], "without a scheme"),
            (["--roles", "api"], "a SQLite file is opened by one process"),
            (["--roles", "api,worker"], "\"worker\" is not a role"),
            (["--roles", "api,scheduler"], "scheduler and dispatcher go together"),
            (["--region", "EU"], "not a region"),
            (["--region", ""], "not a region"),
            (["--database-url", "mysql://u:secret@h/d"], "sqlite:jobs.db"),
            (["--database-url", "sqlite::memory:"], "forget every tick"),
            (["--lease", "1s"], "2s to 10m"),
            (["--slots", "0"], "1 to 10000"),
            (["--max-job-share", "0"], "1 to 100"),
            (["--history", "5m"], "1h or more"),
            (["--audit-retention", "5m"], "1d or more"),
            (["--max-jobs", "0"], "1 to 1000000000"),
            (["--drain-timeout", "2h"], "up to 1h"),
            (["--node-name", "my node"], "not a node name"),
            (["--audit-stream", "/var/log/audit"], "file:/var/log"),
            (["--audit-stream", "http://siem.example.org/"], "--audit-stream: has the scheme"),
        ] {
            let message = resolve(&flags, "").unwrap_err();
            assert!(message.contains(expected), "{flags:?}: {message}");
        }
    }

    #[test]
    fn a_wrong_value_of_the_file_is_refused_with_file_line_and_key() {
        for (flags, file, begin) in [
            (&[][..], "slots = 0", "everytick.toml: line 1: slots: 0 is out of range"),
            (&[], "\n# log\nlog_level = \"info\"\nlease = \"1s\"", "everytick.toml: line 4: lease: 1s is out of range"),
            (&[], "max_job_share = 0", "everytick.toml: line 1: max_job_share: 0"),
            (&[], "roles = [\"api\"]", "everytick.toml: line 1: roles: a SQLite file"),
            (&[], "roles = [\"apy\"]", "everytick.toml: line 1: roles: \"apy\" is not a role"),
            (&[], "listen = \"0.0.0.0:1\"", "everytick.toml: line 1: listen: 0.0.0.0:1"),
            (&[], "region = \"EU\"", "everytick.toml: line 1: region: "),
            (&[], "node_name = \"my node\"", "everytick.toml: line 1: node_name: "),
            (&[], "[shell]\nuser = \"no-such-user\"", "everytick.toml: line 1: shell: user: \"no-such-user\" is not"),
            (
                &[],
                "[egress]\nproxy = \"socks://u:pw@p\"\nproxy_resolves = true",
                "everytick.toml: line 1: egress: proxy is not",
            ),
            (&[], "[egress]\nproxy_resolves = true", "everytick.toml: line 1: egress: proxy_resolves has no effect"),
            (&[], "database_url = \"mysql://h/d\"", "everytick.toml: line 1: database_url is not a database URL"),
            (&[], "database_url_file = \"/no/such\"", "everytick.toml: line 1: database_url_file: /no/such could not"),
            // The flag overrides the file, so the flag is wrong.
            (&["--slots", "0"], "slots = 5", "--slots: 0 is out of range"),
        ] {
            let message = resolve(flags, file).unwrap_err();
            assert!(message.starts_with(begin), "{file}: {message}");
        }
    }

    #[test]
    fn an_open_api_is_set_only_on_the_command_line() {
        assert_eq!(resolve(&["--auth", "open"], "").unwrap().auth, Auth::Open);
        assert_eq!(resolve(&[], "auth = \"required\"").unwrap().auth, Auth::Required);
        let refused = resolve(&[], "auth = \"open\"").unwrap_err();
        assert!(refused.contains("only on the command line"), "{refused}");
    }

    #[test]
    fn an_address_that_other_hosts_reach_needs_tokens_encryption_and_a_public_url() {
        let all = [
            "--public-url",
            "https://jobs.example.org",
            "--listen",
            "0.0.0.0:1",
            "--auth",
            "required",
            "--insecure-http",
        ];
        resolve(&all, "").unwrap();
        for (flags, expected) in
            [(&all[..4], "--auth required"), (&all[..6], "--tls-cert"), (&all[2..], "--public-url")]
        {
            let message = resolve(flags, "").unwrap_err();
            assert!(message.contains(expected), "{flags:?}: {message}");
        }
    }

    #[test]
    fn supported_values_are_accepted_in_every_spelling() {
        for flags in [
            ["--listen", "127.9.9.9:1"],
            ["--listen", "[::1]:1"],
            ["--listen", "localhost:1"],
            ["--roles", "scheduler,dispatcher,api"],
            ["--region", "default"],
        ] {
            resolve(&flags, "").unwrap();
        }
        for (url, file) in
            [("sqlite:a.db", "a.db"), ("sqlite:///var/a.db", "/var/a.db"), ("sqlite:/var/a.db", "/var/a.db")]
        {
            assert_eq!(resolve(&["--database-url", url], "").unwrap().database, DatabaseUrl::Sqlite(file.into()));
        }
    }

    #[test]
    fn the_default_name_of_a_cluster_node_has_its_port_and_the_url_is_shown_without_password() {
        let url = "postgresql://me:se@cret@db.example.org:5433/ticks?sslmode=require";
        let settings = resolve(&["--database-url", url, "--listen", "127.0.0.1:9001", "--roles", "api"], "").unwrap();
        assert!(settings.node_name.ends_with(":9001"), "{}", settings.node_name);
        assert_eq!(settings.database.shown(), "postgres://me@db.example.org:5433/ticks");
        assert_eq!(settings.roles, Roles { api: true, runs_jobs: false });
        let settings = resolve(&["--database-url", url, "--roles", "dispatcher,scheduler"], "").unwrap();
        assert_eq!(settings.roles, Roles { api: false, runs_jobs: true });
    }
}
