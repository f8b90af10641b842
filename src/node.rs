//! Assembles a node from store, targets, engine and API, starts it, and stops it. No other file does this.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use everytick_api::{Api, Auth, Batches, Hosts, InFlight, Listener, ServerLimits, Status};
use everytick_domain::{
    access::RunKey,
    ids::Incarnation,
    secret::OperatorKey,
    time::{DbTime, Span},
};
use everytick_engine::{
    Engine, Hints, Parts, TokioSpawn,
    commands::{Commands, Entropy},
    live::LiveLogs,
    secrets::{Vault, check_keys},
};
use everytick_store::{Announced, Limits, PostgresOptions, PostgresStore, SqliteStore, Store, StoreError, SystemClock};
use everytick_targets::{AddressPolicy, ShellSettings, TERM_GRACE, TargetSettings, Targets, end_orphans};
use tokio_util::sync::CancellationToken;

use crate::{
    access,
    cli::serve::{NEXT_TICKS_MAX, NextTick, Running},
    config::{DatabaseUrl, InlineSecrets, Settings, read_keys},
    descriptors,
    failure::Failure,
    identity,
    listen::Bound,
    telemetry, watchdog,
};

/// The start tries to connect this many times, with a pause of [`CONNECT_PAUSE`] between tries.
const CONNECT_TRIES_MAX: u32 = 30;
const CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Limit of the statement timeout, which is otherwise a third of the lease.
const STATEMENT_TIME_MAX: Duration = Duration::from_secs(5);
/// After a failure, the node waits at most this long for runs in progress: until it ends, its partitions get no ticks.
const BROKEN_DRAIN: Duration = Duration::from_secs(5);
/// After a failure, the node stops waiting for its loops after this long.
const BROKEN_STOP_MAX: Duration = Duration::from_secs(15);
/// When the node stops, requests in progress have this long to end.
const REQUESTS_DRAIN: Duration = Duration::from_secs(5);
/// The banner waits this long for the first load of the horizon.
const FIRST_LOAD: Duration = Duration::from_secs(5);

/// Connections to the listener that serves only metrics. Scrapers need one or two.
const METRICS_CONNECTIONS_MAX: usize = 16;

/// Database connections of a node. The engine has its own, so that requests cannot delay a tick.
const CONNECTIONS: u32 = 10;
const ENGINE_CONNECTIONS: u32 = 6;
/// The engine of a node with only the role api just renews its lease.
const ENGINE_CONNECTIONS_API_ONLY: u32 = 2;

/// See `everytick_prune_audit` in the schema of PostgreSQL.
const AUDIT_RETENTION_PROTECTED_MIN: Span = Span::days(30);

/// Poll interval in a cluster. It bounds how late a node sees changes of other nodes when a notification is lost.
const CLUSTER_POLL: Duration = Duration::from_millis(200);
/// Pause before the listener for notifications connects again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// The banner reads at most `JOBS_READ_MAX` jobs, `JOBS_PER_READ` at a time.
const JOBS_READ_MAX: usize = 1_000;
const JOBS_PER_READ: usize = 100;

/// Starts the node. On return the store is open, the loops run and the listeners are served. When `stopping` is cancelled, the
/// node waits up to the drain timeout for runs in progress, releases the other claims and its lease, and completes `ended`.
pub(crate) async fn start(
    settings: &Settings,
    bound: &mut Bound,
    stopping: CancellationToken,
) -> anyhow::Result<Running> {
    let (listeners, metrics_listener) = (std::mem::take(&mut bound.listeners), bound.metrics.take());
    // Webhooks of the cluster may not connect to these addresses.
    let addresses = bound.addresses.as_slice();
    let metrics = telemetry::start()?;
    tokio::spawn(telemetry::upkeep(metrics.clone()));
    let (hints, live, entropy) = (Hints::default(), LiveLogs::default(), Arc::new(OsEntropy));
    let Stores { engine: store, api: api_store } = open(settings, &hints).await?;
    let vault = vault(store.as_ref(), read_keys(&settings.secret_key_files)?).await?;
    let targets = target_settings(settings);
    let run_key = store.run_key(new_run_key(&*entropy)).await?;
    let shares = descriptors::divide(settings.slots, settings.enable_shell);
    let parts = Parts {
        store: store.clone(),
        target: Arc::new(Targets::start(&targets)?),
        hints: hints.clone(),
        live: live.clone(),
        entropy: entropy.clone(),
        spawn: Arc::new(TokioSpawn),
        wall: Arc::new(SystemClock),
        process_lives: identity::lives,
        settings: everytick_engine::Settings {
            run_key: Some(run_key.clone()),
            vault: vault.clone(),
            ..engine_settings(settings, shares.slots as usize, addresses)
        },
    };
    let engine = Engine::start(parts, new_incarnation(&*entropy)).await.context("could not start the engine")?;
    let engine = Arc::new(engine);
    let _ = tokio::time::timeout(FIRST_LOAD, engine.loaded()).await;

    access::prepare(settings, store.as_ref(), &*entropy, &bound.servers).await?;
    let next_ticks = next_ticks(store.as_ref()).await?;
    tokio::spawn(telemetry::count_tokens(api_store.clone()));
    let commands = Commands::new(api_store, hints, entropy, live).with_vault(vault);
    let api = Arc::new(Api {
        commands: commands.clone().into(),
        metrics_text: Arc::new(move || metrics.render()),
        status: Arc::new(NodeStatus { engine: engine.clone(), node: settings.node_name.clone() }),
        targets,
        min_interval: settings.min_interval,
        history: settings.history,
        auth: Auth::new(access::mode(settings), settings.lifetimes(), Some(run_key)),
        batches: Batches::default(),
        in_flight: InFlight::default(),
        hosts: hosts(settings, addresses),
    });
    let connections_max = settings.max_connections.unwrap_or(shares.connections) as usize;
    let node = Node {
        engine,
        commands,
        metrics: metrics_listener.map(|(listener, _)| (listener, everytick_api::metrics_router(api.clone()))),
        router: if settings.roles.api { everytick_api::router(api) } else { everytick_api::node_router(api) },
        limits: ServerLimits { connections_max, ..ServerLimits::default() },
        drain: Duration::from(settings.drain_timeout),
    };
    let watchdog = watchdog::start(node.engine.clone(), BROKEN_STOP_MAX * 2)?;
    let ended = tokio::spawn(async move {
        let _watchdog = watchdog;
        node.serve(listeners, stopping).await
    });
    Ok(Running { next_ticks, ended })
}

/// The operator's settings for targets. First kills the commands that outlived the last server.
fn target_settings(settings: &Settings) -> TargetSettings {
    let owner = owner(settings);
    match end_orphans(&owner) {
        0 => {}
        count => tracing::warn!("killed {count} processes of commands that outlived the last server"),
    }
    TargetSettings {
        addresses: AddressPolicy::new([&settings.allow_webhook_ranges[..], &settings.egress.allow_ranges].concat())
            .denying(settings.egress.deny_ranges.clone()),
        egress: settings.egress.policy.clone(),
        proxy: settings.egress.proxy.clone(),
        dns_servers: settings.dns_servers.clone(),
        shell: settings.enable_shell.then_some(ShellSettings { grace: TERM_GRACE, owner: Some(owner) }),
        refuse_inline_secrets: settings.inline_secrets == InlineSecrets::Refuse,
    }
}

fn hosts(settings: &Settings, addresses: &[SocketAddr]) -> Hosts {
    Hosts {
        ports: addresses.iter().map(SocketAddr::port).collect(),
        public: settings.public_url.clone(),
        allowed: settings.allow_host.clone(),
    }
}

fn engine_settings(settings: &Settings, slots: usize, addresses: &[SocketAddr]) -> everytick_engine::Settings {
    let (poll, claim_poll) = match &settings.database {
        DatabaseUrl::Sqlite(_) => (Duration::from_secs(1), Duration::from_secs(5)),
        DatabaseUrl::Postgres(_) => (CLUSTER_POLL, CLUSTER_POLL),
    };
    everytick_engine::Settings {
        region: settings.region.clone(),
        may_own: settings.roles.runs_jobs,
        roles: settings.roles.names(),
        poll,
        claim_poll,
        node: settings.node_name.clone(),
        lease: settings.lease,
        slots,
        max_job_share: settings.max_job_share,
        history: settings.history,
        process: Some(identity::own()),
        listen: addresses.iter().copied().flat_map(identity::listening).collect(),
        replace_node: settings.replace_node,
        audit_retention: settings.audit_retention,
        run_key: None,
        vault: None,
    }
}

/// The operator keys, bound to this installation. An error if they cannot decrypt every stored secret: each delivery that needs
/// one would fail.
pub(crate) async fn vault(store: &dyn Store, keys: Vec<OperatorKey>) -> anyhow::Result<Option<Vault>> {
    let vault = match keys.is_empty() {
        true => None,
        false => Vault::new(&store.installation(&new_installation(&OsEntropy)).await?, keys),
    };
    let known = store.secret_keys().await?;
    check_keys(vault.as_ref(), &known).map_err(|wrong| Failure::usage(format!("--secret-key-files: {wrong}")))?;
    Ok(vault)
}

fn new_installation(entropy: &dyn Entropy) -> String {
    new_incarnation(entropy).uuid().to_string()
}

fn new_run_key(entropy: &dyn Entropy) -> RunKey {
    let mut random = [0; 32];
    entropy.fill(&mut random);
    RunKey::from_bytes(random)
}

fn new_incarnation(entropy: &dyn Entropy) -> Incarnation {
    let mut random = [0; 16];
    entropy.fill(&mut random);
    Incarnation::from_uuid(uuid::Builder::from_random_bytes(random).into_uuid())
}

/// A started node.
struct Node {
    engine: Arc<Engine>,
    commands: Commands,
    router: axum::Router,
    /// The listener that serves only metrics.
    metrics: Option<(Listener, axum::Router)>,
    limits: ServerLimits,
    drain: Duration,
}

impl Node {
    /// Serves until the node must stop or a part of it breaks, then stops it.
    async fn serve(self, listeners: Vec<Listener>, stopping: CancellationToken) -> anyhow::Result<()> {
        let Self { engine, commands, router, metrics, limits, drain } = self;
        let closing = CancellationToken::new();
        if let Some((listener, router)) = metrics {
            let limits = ServerLimits { connections_max: METRICS_CONNECTIONS_MAX, ..limits };
            tokio::spawn(everytick_api::serve(vec![listener], router, limits, closing.clone()));
        }
        let mut served = tokio::spawn(everytick_api::serve(listeners, router, limits, closing.clone()));
        let failure = tokio::select! {
            () = stopping.cancelled() => None,
            () = engine.broken() => Some(anyhow::anyhow!("{}", engine.broken_by())),
            ended = &mut served => Some(anyhow::anyhow!("the API ended: {ended:?}")),
        };
        // The API keeps serving while runs end, because receivers still report results. Workers that long-poll are answered now.
        commands.stop_waiting();
        match failure {
            None => engine.stop(drain).await,
            // A loop that hangs may keep its locks forever, so this wait needs a limit.
            Some(_) => drop(tokio::time::timeout(BROKEN_STOP_MAX, engine.stop(drain.min(BROKEN_DRAIN))).await),
        }
        closing.cancel();
        // Streamed answers may never end, so this wait needs a limit.
        if !served.is_finished() && tokio::time::timeout(REQUESTS_DRAIN, &mut served).await.is_err() {
            served.abort();
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The next ticks for the banner, in order. Reads jobs in the order of their cursors. A cursor is a lower bound of the
/// job's next tick, so reading stops when the cursors have passed the ticks found. Reads at most [`JOBS_READ_MAX`] jobs.
async fn next_ticks(store: &dyn Store) -> anyhow::Result<Vec<NextTick>> {
    let now = store.now().await?;
    let (mut found, mut read, mut after) = (Vec::new(), 0, None);
    loop {
        let page = store.load_overdue(DbTime::MAX, after, JOBS_PER_READ).await?;
        after = page.last().and_then(|loaded| loaded.cursor.map(|cursor| (cursor, loaded.job.id)));
        read += page.len();
        found.extend(page.iter().filter_map(|loaded| {
            let at = loaded.job.next_tick(loaded.cursor, now)?;
            Some(NextTick { job: loaded.job.spec.name.clone(), at })
        }));
        found.sort_by_key(|next| next.at);
        found.truncate(NEXT_TICKS_MAX);
        let last = found.get(NEXT_TICKS_MAX - 1).map(|last| last.at);
        let complete = after.is_none_or(|(cursor, _)| last.is_some_and(|last| cursor >= last));
        if complete || read >= JOBS_READ_MAX {
            return Ok(found);
        }
    }
}

/// Two handles to one store, with separate connections: requests that wait for a connection do not delay the engine.
struct Stores {
    engine: Arc<dyn Store>,
    api: Arc<dyn Store>,
}

async fn open(settings: &Settings, hints: &Hints) -> anyhow::Result<Stores> {
    let limits = Limits { jobs_per_tenant_max: settings.max_jobs, ..Limits::default() };
    match &settings.database {
        DatabaseUrl::Sqlite(file) => {
            let store = SqliteStore::open(file, Arc::new(SystemClock), limits).await?;
            Ok(Stores { api: Arc::new(store.api_handle()), engine: Arc::new(store) })
        }
        DatabaseUrl::Postgres(url) => {
            let connections = if settings.roles.runs_jobs { ENGINE_CONNECTIONS } else { ENGINE_CONNECTIONS_API_ONLY };
            let options = PostgresOptions {
                connections_max: connections,
                transaction_pooler: settings.transaction_pooler,
                statement_timeout: (Duration::from(settings.lease) / 3).min(STATEMENT_TIME_MAX),
                ..PostgresOptions::default()
            };
            let store = Arc::new(connect(url, options, limits).await?);
            let row_level_security = if store.has_row_level_security() { "on" } else { "off" };
            tracing::info!(row_level_security, "connected to the database");
            check_audit_retention(settings, &store)?;
            tokio::spawn(listen(store.clone(), hints.clone()));
            Ok(Stores { api: Arc::new(store.api_handle(CONNECTIONS - connections)), engine: store })
        }
    }
}

/// The database refuses to remove audit rows of the last 30 days for a role that does not own them.
fn check_audit_retention(settings: &Settings, store: &PostgresStore) -> Result<(), Failure> {
    if store.has_row_level_security() && settings.audit_retention < AUDIT_RETENTION_PROTECTED_MIN {
        return Err(Failure::usage(format!(
            "--audit-retention {} is below {AUDIT_RETENTION_PROTECTED_MIN}, the least for a node that does not own the tables",
            settings.audit_retention
        )));
    }
    Ok(())
}

/// Connects to PostgreSQL. Tries again if the connection fails, because the server may be starting at the same time.
async fn connect(url: &str, options: PostgresOptions, limits: Limits) -> Result<PostgresStore, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match PostgresStore::connect(url, options.clone(), limits).await {
            Err(error @ StoreError::Failed { .. }) if tries < CONNECT_TRIES_MAX => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, source, "trying again in {CONNECT_PAUSE:?}, at most {CONNECT_TRIES_MAX} times");
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// Wakes the loops when another node notifies. Notifications are hints. If one is lost, the next poll finds the
/// change.
async fn listen(store: Arc<PostgresStore>, hints: Hints) {
    loop {
        match store.listen().await {
            Ok(None) => return,
            Ok(Some(mut notifications)) => {
                while let Ok(announced) = notifications.changed().await {
                    if announced != Announced::Jobs {
                        hints.access_changed();
                    }
                    if announced != Announced::Access {
                        hints.jobs_changed();
                        hints.run_waits();
                        hints.owners_changed();
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "could not listen for notifications; trying again"),
        }
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

/// Identifies the commands that this node starts: the database by its canonical path or URL, and in a cluster the node name.
fn owner(settings: &Settings) -> String {
    match &settings.database {
        DatabaseUrl::Sqlite(file) => std::fs::canonicalize(file).unwrap_or_else(|_| file.clone()).display().to_string(),
        DatabaseUrl::Postgres(_) => format!("{} {}", settings.database.shown(), settings.node_name),
    }
}

/// Kills the commands of a node that does not stop gracefully.
pub(crate) fn kill_commands(settings: &Settings) {
    end_orphans(&owner(settings));
}

struct NodeStatus {
    engine: Arc<Engine>,
    node: String,
}

impl Status for NodeStatus {
    fn ready(&self) -> Result<(), String> {
        self.engine.ready()
    }
    fn node(&self) -> &str {
        &self.node
    }
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Random bytes from the operating system.
pub(crate) struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            // Ids without randomness would collide, so the process must not continue.
            panic!("the operating system returned no random bytes: {error}");
        }
    }
}
