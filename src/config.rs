//! Resolves settings: a flag, else its `EVERYTICK_*` variable, else its key in `everytick.toml`, else the default.
//! Clap merges flags and variables. This file adds the other two and refuses values that this release does not support.

mod address;
mod database;
mod file;

use std::{fmt, net::SocketAddr};

use everytick_domain::{home::check_region, schedule::EVERY_MIN, time::Span};
use everytick_store::Limits;
use ipnet::IpNet;

use crate::{
    cli::serve::ServeFlags,
    failure::Failure,
    logging::{LogFormat, LogLevel},
};

pub(crate) use address::{AddressRange, DnsServer, Listen};
pub(crate) use database::{DatabaseSource, DatabaseUrl, database};
pub(crate) use file::File;

pub(crate) const FILE_DEFAULT: &str = "everytick.toml";
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:8640";

const LEASE_RANGE: (Span, Span) = (Span::seconds(2), Span::minutes(10));
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
    pub(crate) listen: SocketAddr,
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
    pub(crate) allow_webhook_ranges: Vec<IpNet>,
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
    /// Shortest allowed distance between two ticks of one job.
    pub(crate) min_interval: Span,
    /// Limit of jobs per tenant.
    pub(crate) max_jobs: u64,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
}

impl Settings {
    pub(crate) fn resolve(flags: ServeFlags, file: File) -> Result<Self, Failure> {
        let flags_source = DatabaseSource { url: flags.database_url, url_file: flags.database_url_file };
        let database = database(flags_source, flags.data_dir, &file)?;
        let roles = Roles::read(&flags.roles.or(file.roles).unwrap_or_default())?;
        let region = flags.region.or(file.region);
        if let Some(region) = &region {
            check_region(region).map_err(|wrong| Failure::usage(format!("--region: {wrong}")))?;
        }
        let listen = flags.listen.or(file.listen).unwrap_or_default().address();
        check_loopback(listen)?;
        let node_name = match flags.node_name.or(file.node_name) {
            Some(name) => name,
            // Several nodes of a cluster may run on one host, and each needs its own name.
            None if matches!(database, DatabaseUrl::Postgres(_)) => format!("{}:{}", host_name(), listen.port()),
            None => host_name(),
        };
        let webhook_ranges = flags.allow_webhook_range.or(file.allow_webhook_range).unwrap_or_default();
        let dns_servers = flags.dns_server.or(file.dns_server).unwrap_or_default();
        let settings = Self {
            listen,
            database,
            transaction_pooler: flags.transaction_pooler.or(file.transaction_pooler).unwrap_or(false),
            roles,
            region,
            node_name,
            replace_node: flags.replace_node.or(file.replace_node).unwrap_or(false),
            lease: flags.lease.or(file.lease).unwrap_or(Span::seconds(15)),
            drain_timeout: flags.drain_timeout.or(file.drain_timeout).unwrap_or(Span::seconds(30)),
            enable_shell: flags.enable_shell.or(file.enable_shell).unwrap_or(false),
            allow_webhook_ranges: webhook_ranges.into_iter().map(|range| range.0).collect(),
            slots: flags.slots.or(file.slots).unwrap_or(1_000),
            max_connections: flags.max_connections.or(file.max_connections),
            max_job_share: flags.max_job_share.or(file.max_job_share).unwrap_or(25),
            dns_servers: dns_servers.into_iter().map(|server| server.0).collect(),
            history: flags.history.or(file.history).unwrap_or(Span::days(90)),
            audit_retention: flags.audit_retention.or(file.audit_retention).unwrap_or(Span::days(400)),
            min_interval: flags.min_interval.or(file.min_interval).unwrap_or(EVERY_MIN),
            max_jobs: flags.max_jobs.or(file.max_jobs).unwrap_or(Limits::default().jobs_per_tenant_max),
            log_format: flags.log_format.or(file.log_format).unwrap_or_default(),
            log_level: flags.log_level.or(file.log_level).unwrap_or_default(),
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), Failure> {
        let check = |is_valid: bool, flag: &str, value: &dyn fmt::Display, range: String| {
            if is_valid {
                Ok(())
            } else {
                Err(Failure::usage(format!("--{flag}: {value} is out of range; allowed: {range}")))
            }
        };
        if matches!(self.database, DatabaseUrl::Sqlite(_)) && self.roles != Roles::ALL {
            return Err(Failure::usage(
                "--roles: a SQLite file is opened by one process, which needs all three roles; \
                 to split roles, let the nodes share a PostgreSQL database (--database-url postgres://...)",
            ));
        }
        let (low, high) = LEASE_RANGE;
        check((low..=high).contains(&self.lease), "lease", &self.lease, format!("{low} to {high}"))?;
        check(self.drain_timeout <= DRAIN_MAX, "drain-timeout", &self.drain_timeout, format!("up to {DRAIN_MAX}"))?;
        let (low, high) = (EVERY_MIN, MIN_INTERVAL_MAX);
        check(
            (low..=high).contains(&self.min_interval),
            "min-interval",
            &self.min_interval,
            format!("{low} to {high}"),
        )?;
        check(self.history >= HISTORY_MIN, "history", &self.history, format!("{HISTORY_MIN} or more"))?;
        check(
            self.audit_retention >= AUDIT_RETENTION_MIN,
            "audit-retention",
            &self.audit_retention,
            format!("{AUDIT_RETENTION_MIN} or more"),
        )?;
        check((1..=MAX_JOBS_MAX).contains(&self.max_jobs), "max-jobs", &self.max_jobs, format!("1 to {MAX_JOBS_MAX}"))?;
        check((1..=SLOTS_MAX).contains(&self.slots), "slots", &self.slots, format!("1 to {SLOTS_MAX}"))?;
        if let Some(max) = self.max_connections {
            let range = format!("1 to {MAX_CONNECTIONS_MAX}");
            check((1..=MAX_CONNECTIONS_MAX).contains(&max), "max-connections", &max, range)?;
        }
        let share = self.max_job_share;
        check((1..=100).contains(&share), "max-job-share", &share, "1 to 100 (percent)".to_owned())?;
        let name = &self.node_name;
        // Each delivery sends the name in a header.
        if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::usage(format!(
                "--node-name: {name:?} is not a node name; write 1 to {NODE_NAME_BYTES_MAX} visible ASCII characters without spaces"
            )));
        }
        Ok(())
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

    fn read(roles: &[String]) -> Result<Self, Failure> {
        if roles.is_empty() {
            return Ok(Self::ALL);
        }
        if let Some(unknown) = roles.iter().find(|role| !Self::NAMES.contains(&role.as_str())) {
            return Err(Failure::usage(format!(
                "--roles: {unknown:?} is not a role; the roles are {}",
                Self::NAMES.join(", ")
            )));
        }
        let [api, scheduler, dispatcher] = Self::NAMES.map(|role| roles.iter().any(|given| given == role));
        if scheduler != dispatcher {
            return Err(Failure::usage(
                "--roles: scheduler and dispatcher go together, because the node that owns a partition also starts its \
                 runs; write api, or scheduler,dispatcher, or all three",
            ));
        }
        Ok(Self { api, runs_jobs: scheduler })
    }
}

fn check_loopback(listen: SocketAddr) -> Result<(), Failure> {
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--listen: {listen} is not a loopback address, and access tokens do not exist yet: any client that reaches the port \
         could change every job. Listen on 127.0.0.1 or [::1]; from other hosts, connect through ssh -L or a proxy with login"
    )))
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
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8640");
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
        assert_eq!(seen, 26);
    }

    #[test]
    fn a_wrong_or_unsupported_value_is_refused_with_the_reason() {
        for (flags, expected) in [
            (["--listen", "0.0.0.0:8640"], "tokens do not exist yet"),
            (["--listen", "[::]:8640"], "tokens do not exist yet"),
            (["--listen", "192.168.1.2:8640"], "not a loopback address"),
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
        ] {
            let message = resolve(&flags, "").unwrap_err();
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
