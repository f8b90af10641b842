//! `everytick serve`: resolves settings, binds the listener, prints the banner and handles signals.
//! [`crate::node`] assembles the node itself.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, builder::BoolishValueParser};
use everytick_api::{AllowedHost, PublicUrl, TLS_CHECK_EVERY, Tls};
use everytick_domain::time::{DbTime, Span};
use everytick_store::PostgresStore;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::number::whole;
use crate::{
    config::{
        AddressRange, Auth, DatabaseUrl, DnsServer, File, InlineSecrets, Listen, SERVER_DEFAULT, Settings,
        TlsClientAuth,
    },
    failure::{self, Failure},
    listen,
    logging::{self, LogFormat, LogLevel},
    node, output,
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick serve
  everytick serve --listen 127.0.0.1:9000 --data-dir /var/lib/everytick
  everytick serve --enable-shell --allow-webhook-range 127.0.0.0/8
  EVERYTICK_LOG_LEVEL=debug everytick serve --log-format json
  everytick serve --database-url postgres://everytick@db.example.org/everytick

everytick.toml:
  data_dir = \"/var/lib/everytick\"
  drain_timeout = \"1m\"
  allow_webhook_range = [\"10.0.0.0/8\"]
  [egress]
  ports = [443, \"8000-8999\"]

The section [egress] has no flags: allow_ranges, deny_ranges, hosts, ports, https_only, proxy and proxy_resolves decide
which URLs webhooks may call.
With --tls-cert, SIGHUP reloads the certificate. The node also reloads a changed file within 30 s.
SIGTERM or Ctrl-C stops the node gracefully: runs in progress have --drain-timeout to end.
A second signal stops it at once.
With SQLite, all data is in one file, and only one process may open it.
With PostgreSQL, any number of nodes share the database: start the same command on each.";

/// The first commands of a new user, also in `everytick --help`.
pub(crate) const FIRST_STEPS: [&str; 3] =
    ["job create hello --every 10s --queue hello", "worker --queue hello -- echo hello", "run list"];
/// The banner lists at most this many ticks.
pub(crate) const NEXT_TICKS_MAX: usize = 5;
/// Time to stop beyond the drain timeout: for the last answers, for commands between TERM and KILL, and for the last writes.
const STOP_SLACK: Duration = Duration::from_secs(30);

/// Each field is a flag, a variable and a key of `everytick.toml`. `None` means that neither flag nor variable is set.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeFlags {
    /// Serve the API on this address or Unix socket (unix:PATH); repeatable [default: 127.0.0.1:8640]
    #[arg(
        long,
        env = "EVERYTICK_LISTEN",
        value_name = "ADDRESS",
        value_delimiter = ',',
        num_args = 1,
        action = clap::ArgAction::Append,
        help_heading = "Node"
    )]
    pub(crate) listen: Option<Vec<Listen>>,
    /// Serve the metrics also on this address, in plain HTTP and without a token; the API is not served there
    #[arg(long, env = "EVERYTICK_METRICS_LISTEN", value_name = "ADDRESS", help_heading = "Node")]
    pub(crate) metrics_listen: Option<Listen>,
    /// Serve HTTPS on the TCP listeners, with the certificate (PEM, then the intermediates) in this file
    #[arg(long, env = "EVERYTICK_TLS_CERT", value_name = "FILE", help_heading = "TLS")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Read the private key of --tls-cert from this PEM file, which other users may not read
    #[arg(long, env = "EVERYTICK_TLS_KEY", value_name = "FILE", help_heading = "TLS")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept certificates of clients that the authorities in this PEM file issued
    #[arg(long, env = "EVERYTICK_TLS_CLIENT_CA", value_name = "FILE", help_heading = "TLS")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Ask clients for a certificate of --tls-client-ca [default: none]
    #[arg(long, env = "EVERYTICK_TLS_CLIENT_AUTH", value_name = "MODE", help_heading = "TLS")]
    pub(crate) tls_client_auth: Option<TlsClientAuth>,
    /// Allow plain HTTP on addresses that are not loopback: others on the network can read tokens and payloads
    #[arg(
        long,
        env = "EVERYTICK_INSECURE_HTTP",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        help_heading = "TLS"
    )]
    pub(crate) insecure_http: Option<bool>,
    /// Clients reach the API at this URL, such as https://jobs.example.org: accept its Host and Origin
    #[arg(long, env = "EVERYTICK_PUBLIC_URL", value_name = "URL", help_heading = "Node")]
    pub(crate) public_url: Option<PublicUrl>,
    /// Accept this Host in requests, such as jobs.internal or localhost:9000; repeatable
    #[arg(
        long,
        env = "EVERYTICK_ALLOW_HOST",
        value_name = "NAME",
        value_delimiter = ',',
        num_args = 1,
        action = clap::ArgAction::Append,
        help_heading = "Node"
    )]
    pub(crate) allow_host: Option<Vec<AllowedHost>>,
    /// Require a token: auto (once one exists, and with --enable-shell), required, or open (never) [default: auto]
    #[arg(long, env = "EVERYTICK_AUTH", value_name = "MODE", help_heading = "Access")]
    pub(crate) auth: Option<Auth>,
    /// Create the first token, with the role admin, from this file
    #[arg(long, env = "EVERYTICK_BOOTSTRAP_TOKEN_FILE", value_name = "FILE", help_heading = "Access")]
    pub(crate) bootstrap_token_file: Option<PathBuf>,
    /// Refuse tokens that live longer than this [default: 366d]
    #[arg(long, env = "EVERYTICK_TOKEN_TTL_MAX", value_name = "DURATION", help_heading = "Access")]
    pub(crate) token_ttl_max: Option<Span>,
    /// Allow tokens that never expire
    #[arg(
        long,
        env = "EVERYTICK_ALLOW_TOKENS_WITHOUT_EXPIRY",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        help_heading = "Access"
    )]
    pub(crate) allow_tokens_without_expiry: Option<bool>,
    /// Encrypt secrets with the keys in these files: the first encrypts, all decrypt; other users may not read them
    #[arg(
        long,
        env = "EVERYTICK_SECRET_KEY_FILES",
        value_name = "FILES",
        value_delimiter = ',',
        num_args = 1,
        action = clap::ArgAction::Append,
        help_heading = "Access"
    )]
    pub(crate) secret_key_files: Option<Vec<PathBuf>>,
    /// Accept new credentials in jobs that are not references to secrets: allow or refuse [default: allow]
    #[arg(
        long,
        env = "EVERYTICK_INLINE_SECRETS",
        value_name = "MODE",
        hide_possible_values = true,
        help_heading = "Access"
    )]
    pub(crate) inline_secrets: Option<InlineSecrets>,
    /// Store the SQLite database in this directory [default: ./everytick-data]
    #[arg(long, env = "EVERYTICK_DATA_DIR", value_name = "DIR", help_heading = "Node")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Use this database instead of the file in --data-dir: sqlite:<file>, or postgres://user@host/database for a cluster
    #[arg(long, env = "EVERYTICK_DATABASE_URL", value_name = "URL", hide_env_values = true, help_heading = "Node")]
    pub(crate) database_url: Option<String>,
    /// Read the database URL from this file, so that no password is on the command line
    #[arg(long, env = "EVERYTICK_DATABASE_URL_FILE", value_name = "FILE", help_heading = "Node")]
    pub(crate) database_url_file: Option<PathBuf>,
    /// Connect through a transaction pooler, which may use another connection for each transaction (such as PgBouncer)
    #[arg(
        long,
        env = "EVERYTICK_TRANSACTION_POOLER",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        help_heading = "Node"
    )]
    pub(crate) transaction_pooler: Option<bool>,
    /// Give this node these roles: api, or scheduler,dispatcher, or all three [default: api,scheduler,dispatcher]
    #[arg(long, env = "EVERYTICK_ROLES", value_name = "ROLES", value_delimiter = ',', help_heading = "Node")]
    pub(crate) roles: Option<Vec<String>>,
    /// Set the region of this node: it prefers jobs with this home_region
    #[arg(long, env = "EVERYTICK_REGION", value_name = "REGION", help_heading = "Node")]
    pub(crate) region: Option<String>,
    /// Name this node in runs and logs; each node needs its own name [default: the host name, in a cluster with the port]
    #[arg(long, env = "EVERYTICK_NODE_NAME", value_name = "NAME", help_heading = "Node")]
    pub(crate) node_name: Option<String>,
    /// Stop a live process that has the same node name and replace it; without this flag, the new process does not start
    #[arg(
        long,
        env = "EVERYTICK_REPLACE_NODE",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        help_heading = "Node"
    )]
    pub(crate) replace_node: Option<bool>,
    /// Treat this node as dead when it has not renewed its lease for this long [default: 15s]
    #[arg(long, env = "EVERYTICK_LEASE", value_name = "DURATION", help_heading = "Node")]
    pub(crate) lease: Option<Span>,
    /// Wait this long for runs in progress when the node stops [default: 30s]
    #[arg(long, env = "EVERYTICK_DRAIN_TIMEOUT", value_name = "DURATION", help_heading = "Node")]
    pub(crate) drain_timeout: Option<Span>,
    /// Allow jobs to run commands on this host
    #[arg(
        long,
        env = "EVERYTICK_ENABLE_SHELL",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        help_heading = "Runs"
    )]
    pub(crate) enable_shell: Option<bool>,
    /// Allow webhooks to these private addresses, such as 127.0.0.0/8; repeatable
    #[arg(
        long,
        env = "EVERYTICK_ALLOW_WEBHOOK_RANGE",
        value_name = "CIDR",
        value_delimiter = ',',
        num_args = 1,
        action = clap::ArgAction::Append,
        help_heading = "Runs"
    )]
    pub(crate) allow_webhook_range: Option<Vec<AddressRange>>,
    /// Allow at most this many runs in progress on this node [default: 1000]
    #[arg(long, env = "EVERYTICK_SLOTS", value_name = "N", value_parser = whole::<u32>(1..=10_000), help_heading = "Runs")]
    pub(crate) slots: Option<u32>,
    /// Allow at most this many API connections; a further one closes the oldest idle one [default: from the open-file limit]
    #[arg(long, env = "EVERYTICK_MAX_CONNECTIONS", value_name = "N", value_parser = whole::<u32>(1..=1_000_000), help_heading = "Node")]
    pub(crate) max_connections: Option<u32>,
    /// Allow one job to use at most this percentage of the slots [default: 25]
    #[arg(long, env = "EVERYTICK_MAX_JOB_SHARE", value_name = "PERCENT", value_parser = whole::<u8>(1..=100), help_heading = "Runs")]
    pub(crate) max_job_share: Option<u8>,
    /// Resolve webhook hosts with this DNS server, such as 10.0.0.53:53; repeatable [default: the system's servers]
    #[arg(
        long,
        env = "EVERYTICK_DNS_SERVER",
        value_name = "ADDRESS",
        value_delimiter = ',',
        num_args = 1,
        action = clap::ArgAction::Append,
        help_heading = "Runs"
    )]
    pub(crate) dns_server: Option<Vec<DnsServer>>,
    /// Delete ended runs after this long [default: 90d]
    #[arg(long, env = "EVERYTICK_HISTORY", value_name = "DURATION", help_heading = "Runs")]
    pub(crate) history: Option<Span>,
    /// Delete rows of the audit trail after this long [default: 400d]
    #[arg(long, env = "EVERYTICK_AUDIT_RETENTION", value_name = "DURATION", help_heading = "Runs")]
    pub(crate) audit_retention: Option<Span>,
    /// Send every row of the audit trail to file:PATH, stderr or an https URL, at least once and in order
    #[arg(long, env = "EVERYTICK_AUDIT_STREAM", value_name = "RECEIVER", hide_env_values = true, help_heading = "Log")]
    pub(crate) audit_stream: Option<String>,
    /// Refuse jobs whose ticks are closer together than this [default: 1s]
    #[arg(long, env = "EVERYTICK_MIN_INTERVAL", value_name = "DURATION", help_heading = "Runs")]
    pub(crate) min_interval: Option<Span>,
    /// Allow at most this many jobs per tenant [default: 100000]
    #[arg(long, env = "EVERYTICK_MAX_JOBS", value_name = "N", value_parser = whole::<u64>(1..=1_000_000_000), help_heading = "Runs")]
    pub(crate) max_jobs: Option<u64>,
    /// Write the log to stderr in this format [default: text]
    #[arg(long, env = "EVERYTICK_LOG_FORMAT", value_name = "FORMAT", help_heading = "Log")]
    pub(crate) log_format: Option<LogFormat>,
    /// Log this level and above: error, warn, info, debug or trace [default: info]
    #[arg(long, env = "EVERYTICK_LOG_LEVEL", value_name = "LEVEL", help_heading = "Log")]
    pub(crate) log_level: Option<LogLevel>,
}

pub(crate) fn run(flags: ServeFlags, file: File) -> anyhow::Result<()> {
    file.check_owner()?;
    let settings = Settings::resolve(flags, file)?;
    logging::start(settings.log_format, &settings.log_level)?;
    forbid_dumps();
    raise_file_limit();
    warn_of_unverified(&settings.database);
    if settings.auth == Auth::Open {
        tracing::warn!("--auth open: every program on this machine may do everything, whatever tokens exist");
    }
    if settings.shell.is_some() && !settings.enable_shell {
        tracing::warn!("the section [shell] starts no commands: --enable-shell is off");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(&settings));
    // Do not wait for tasks that are still running.
    runtime.shutdown_background();
    logging::flush();
    served.map_err(|error| failure::reworded(error, |message| settings.by_source(message)))
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let tls = settings.tls.clone().map(Tls::load).transpose().map_err(Failure::usage)?;
    // Before the start, which may take long: without a handler, SIGHUP ends the process.
    let hangup = tls.is_some().then(|| signal(SignalKind::hangup())).transpose()?;
    let mut bound = listen::bind(&settings.listen, settings.metrics_listen.as_ref(), tls.as_ref()).await?;
    let stopping = CancellationToken::new();
    let metrics_at = bound.metrics.as_ref().map(|(_, address)| address.clone());
    let mut node = node::start(settings, &mut bound, stopping.clone()).await?;
    if let (Some(tls), Some(hangup)) = (tls, hangup) {
        reload_certificate(tls, hangup);
    }
    if let Some(address) = metrics_at {
        tracing::info!(address, "metrics are served without a token");
    }
    announce(settings, &bound.servers, &node.next_ticks);

    let ended = tokio::select! {
        ended = &mut node.ended => Some(ended),
        name = signals.next() => {
            tracing::info!("{name}: stopping; runs in progress have {} to end, a second signal stops at once", settings.drain_timeout);
            None
        }
    };
    stopping.cancel();
    if let Some(ended) = ended {
        node::kill_commands(settings);
        return ended.context("the node panicked")?.context("the node stopped unexpectedly");
    }
    let patience = Duration::from(settings.drain_timeout) + STOP_SLACK;
    tokio::select! {
        ended = tokio::time::timeout(patience, &mut node.ended) => match ended {
            Ok(ended) => ended.context("the node panicked while stopping")??,
            Err(_) => anyhow::bail!("could not stop within {patience:?}; runs in progress are recovered at the next start"),
        },
        name = signals.next() => {
            node::kill_commands(settings);
            anyhow::bail!("{name} again: stopped at once; runs in progress are recovered at the next start")
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Reloads the certificate at SIGHUP and when its files change.
fn reload_certificate(tls: Tls, mut hangup: Signal) {
    let asked = Arc::new(Notify::new());
    tokio::spawn(tls.watch(TLS_CHECK_EVERY, asked.clone()));
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            asked.notify_one();
        }
    });
}

/// A running node.
#[derive(Debug)]
pub(crate) struct Running {
    /// Up to [`NEXT_TICKS_MAX`] jobs with the earliest next ticks, for the banner.
    pub(crate) next_ticks: Vec<NextTick>,
    /// Ends when the node has stopped, either after `stopping` was cancelled or because of a failure.
    pub(crate) ended: JoinHandle<anyhow::Result<()>>,
}

#[derive(Debug)]
pub(crate) struct NextTick {
    pub(crate) job: String,
    pub(crate) at: DbTime,
}

/// Disables core files, and stops other processes of this user from reading the memory, which contains secrets and payloads.
fn forbid_dumps() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(%error, "could not disable core files and access to this process's memory");
        }
    }
}

/// Warns if the connection to PostgreSQL can be read or hijacked on the network.
fn warn_of_unverified(database: &DatabaseUrl) {
    let DatabaseUrl::Postgres(url) = database else { return };
    // The connect call reports an invalid URL.
    if let Ok(Some(host)) = PostgresStore::unverified_host(url) {
        tracing::warn!(
            host,
            "the connection to PostgreSQL is not protected: the host is not loopback and sslmode is not verify-full; \
             add ?sslmode=verify-full&sslrootcert=FILE to the database URL"
        );
    }
}

/// Each run in progress may need a connection or pipes, and the default limit on many systems is 1,024 open files.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the open-file limit; runs may fail when many are in progress");
    }
}

/// Prints the addresses and the database: as a banner on stdout, or as a log record if the log is JSON.
fn announce(settings: &Settings, servers: &[String], next_ticks: &[NextTick]) {
    if settings.log_format == LogFormat::Json {
        let all = servers.join(", ");
        tracing::info!(address = %all, database = %settings.database.shown(), node = settings.node_name, "listening on {all}");
        return;
    }
    let mut out = io::stdout().lock();
    let colour = output::colour_wanted() && out.is_terminal();
    // A closed stdout must not stop the server.
    let _ = out.write_all(banner(settings, servers, next_ticks, colour).as_bytes()).and_then(|()| out.flush());
}

fn banner(settings: &Settings, servers: &[String], next_ticks: &[NextTick], colour: bool) -> String {
    let (bold, dim, off) = if colour { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
    let mut text = format!("{bold}everytick {}{off}\n", env!("CARGO_PKG_VERSION"));
    for server in servers {
        text += &format!("  listening on {bold}{server}{off}\n");
    }
    if let Some(public) = &settings.public_url {
        text += &format!("  public URL {bold}{}{off}\n", public.as_str());
    }
    text += &format!("  data in {}\n", settings.database.shown());
    if next_ticks.is_empty() {
        text += "  no upcoming ticks; in another terminal, create a job and start a worker for its runs:\n";
        for step in first_steps(servers) {
            text += &format!("    {step}\n");
        }
    } else {
        text += "  next ticks:\n";
        for next in next_ticks.iter().take(NEXT_TICKS_MAX) {
            text += &format!("    {}  {dim}{}{off}\n", next.at, next.job);
        }
    }
    text + "\n"
}

/// Commands that succeed on a server with any settings: a worker needs neither `--enable-shell` nor a reachable receiver.
fn first_steps(servers: &[String]) -> [String; 3] {
    let server = match servers.first() {
        Some(server) if server != SERVER_DEFAULT => format!(" --server {server}"),
        _ => String::new(),
    };
    FIRST_STEPS.map(|step| format!("everytick{server} {step}"))
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "TERM",
            _ = self.int.recv() => "INT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let flags = ServeFlags { data_dir: Some("data".into()), node_name: Some("n".into()), ..ServeFlags::default() };
        Settings::resolve(flags, File::default()).unwrap()
    }

    #[test]
    fn the_banner_shows_the_address_the_database_and_how_to_create_a_job() {
        let text = banner(&settings(), &[SERVER_DEFAULT.to_owned()], &[], false);
        assert!(text.contains("\n  listening on http://127.0.0.1:8640\n"), "{text}");
        assert!(text.contains("\n  data in data/everytick.db\n"), "{text}");
        assert!(text.contains("\n    everytick job create hello --every 10s --queue hello\n"), "{text}");
        let servers = ["http://127.0.0.1:9000".to_owned(), "unix:/run/api.sock".to_owned()];
        let public_url = Some("https://jobs.example.org".parse().unwrap());
        let text = banner(&Settings { public_url, ..settings() }, &servers, &[], false);
        assert!(text.contains("  listening on http://127.0.0.1:9000\n  listening on unix:/run/api.sock\n"), "{text}");
        assert!(text.contains("\n  public URL https://jobs.example.org\n"), "{text}");
        assert!(text.contains("everytick --server http://127.0.0.1:9000 job create"), "{text}");
    }

    #[test]
    fn the_banner_lists_the_next_ticks() {
        let next = NextTick { job: "nightly".to_owned(), at: "2026-11-16T07:00:00Z".parse().unwrap() };
        let text = banner(&settings(), &[SERVER_DEFAULT.to_owned()], &[next], false);
        assert!(text.contains("next ticks:\n    2026-11-16T07:00:00Z  nightly\n"), "{text}");
        assert!(!text.contains("job create"), "{text}");
    }
}
