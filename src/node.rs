//! Store, targets, engine and API are put together here, and nowhere else.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use anyhow::Context;
use everytick_api::{Api, Status};
use everytick_domain::ids::{Incarnation, TenantId};
use everytick_engine::{
    Engine, Hints, Parts, TokioSpawn,
    commands::{Commands, Entropy},
    live::LiveLogs,
};
use everytick_store::{JobFilter, JobRecord, Limits, PostgresOptions, PostgresStore, SqliteStore, Store, SystemClock};
use everytick_targets::{AddressPolicy, Shell, TERM_GRACE, Targets, Webhook, end_orphans};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::serve::{Running, SOONEST_MAX, Soonest},
    config::{DatabaseUrl, Settings},
    telemetry,
};

/// A statement may take no longer, however long the lease.
const STATEMENT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long requests in progress may take to end when the node stops.
const REQUESTS_DRAIN: Duration = Duration::from_secs(5);
/// How long the first load of the horizon is waited for before the banner is printed without it.
const FIRST_LOAD: Duration = Duration::from_secs(5);

/// How soon a node of a cluster sees what others have done, where no notification comes through.
const CLUSTER_POLL: Duration = Duration::from_millis(200);
/// After a failure the listener for notifications waits this long.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// How many jobs are asked for their next tick when none is near.
const JOBS_ASKED_MAX: usize = 1_000;

/// When it returns, the store is open, the loops run and `listener` is being served. Once `stopping` is cancelled the node
/// lets runs in progress end within the drain time-out, hands the rest back, leaves its lease, and
/// `ended` ends.
pub(crate) async fn start(
    settings: &Settings,
    listener: TcpListener,
    stopping: CancellationToken,
) -> anyhow::Result<Running> {
    let metrics = telemetry::start()?;
    tokio::spawn(telemetry::upkeep(metrics.clone()));
    let (hints, live, entropy) = (Hints::default(), LiveLogs::default(), Arc::new(OsEntropy));
    let store = open(settings, &hints).await?;
    let webhook = Webhook::new(AddressPolicy::new(settings.allow_webhook_ranges.clone()))?;
    let owner = owner(settings);
    match end_orphans(&owner) {
        0 => {}
        count => tracing::warn!("killed {count} processes of commands that outlived the last server"),
    }
    let shell = settings.enable_shell.then(|| Shell::new(TERM_GRACE).owned_by(owner));
    let mut incarnation = [0; 16];
    entropy.fill(&mut incarnation);
    let (poll, look) = match &settings.database {
        DatabaseUrl::Sqlite(_) => (Duration::from_secs(1), Duration::from_secs(5)),
        DatabaseUrl::Postgres(_) => (CLUSTER_POLL, CLUSTER_POLL),
    };
    let parts = Parts {
        store: store.clone(),
        target: Arc::new(Targets::new(webhook, shell)),
        hints: hints.clone(),
        live: live.clone(),
        entropy: entropy.clone(),
        spawn: Arc::new(TokioSpawn),
        wall: Arc::new(SystemClock),
        settings: everytick_engine::Settings {
            region: settings.region.clone(),
            holds: settings.roles.plays,
            poll,
            look,
            node: settings.node_name.clone(),
            lease: settings.lease,
            slots: settings.slots as usize,
            history: settings.history,
        },
    };
    let engine =
        Engine::start(parts, Incarnation::from_uuid(uuid::Builder::from_random_bytes(incarnation).into_uuid()))
            .await
            .context("could not start the engine")?;
    let engine = Arc::new(engine);
    let _ = tokio::time::timeout(FIRST_LOAD, engine.loaded()).await;

    let soonest = soonest(&engine, store.as_ref()).await?;
    let api = Api {
        commands: Commands::new(store, hints, entropy, live),
        metrics_text: Arc::new(move || metrics.render()),
        status: Arc::new(NodeStatus { engine: engine.clone(), node: settings.node_name.clone() }),
        shell_enabled: settings.enable_shell,
        min_interval: settings.min_interval,
        history: settings.history,
        listen: listener.local_addr()?,
    };
    let answers = settings.roles.api;
    let commands = api.commands.clone();
    let drain = Duration::from(settings.drain_timeout);
    let ended = tokio::spawn(async move {
        let closing = CancellationToken::new();
        let router = if answers { everytick_api::router(api) } else { everytick_api::node_router(api) };
        let served = axum::serve(listener, router).with_graceful_shutdown(closing.clone().cancelled_owned());
        let mut served = tokio::spawn(served.into_future());
        let broke = tokio::select! {
            () = stopping.cancelled() => None,
            () = engine.broken() => Some(anyhow::anyhow!("a loop of the engine broke down; see the log")),
            ended = &mut served => Some(anyhow::anyhow!("the API ended: {ended:?}")),
        };
        // The API answers on while runs end: a receiver that reports later must be heard. Workers need not wait here.
        commands.stop_waiting();
        engine.stop(drain).await;
        closing.cancel();
        // Answers that stream on are not waited for longer than this.
        if !served.is_finished() && tokio::time::timeout(REQUESTS_DRAIN, &mut served).await.is_err() {
            served.abort();
        }
        broke.map_or(Ok(()), Err)
    });
    Ok(Running { soonest, ended })
}

/// The next ticks for the banner. The engine knows those that are near; where none is, the first jobs by name are asked, so
/// that somebody with a few nightly jobs sees them.
async fn soonest(engine: &Engine, store: &dyn Store) -> anyhow::Result<Vec<Soonest>> {
    let near = engine.coming(SOONEST_MAX);
    if !near.is_empty() {
        return Ok(near.into_iter().map(|(at, job)| Soonest { job, at }).collect());
    }
    let page = store.list_jobs(TenantId::DEFAULT, &JobFilter::default(), None, JOBS_ASKED_MAX).await?;
    let next = |record: JobRecord| {
        let at = record.job.next_tick(record.cursor, record.now)?;
        Some(Soonest { job: record.job.spec.name.clone(), at })
    };
    let mut soonest: Vec<Soonest> = page.items.into_iter().filter_map(next).collect();
    soonest.sort_by_key(|next| next.at);
    soonest.truncate(SOONEST_MAX);
    Ok(soonest)
}

async fn open(settings: &Settings, hints: &Hints) -> anyhow::Result<Arc<dyn Store>> {
    let limits = Limits { jobs_per_tenant_max: settings.max_jobs, ..Limits::default() };
    match &settings.database {
        DatabaseUrl::Sqlite(file) => Ok(Arc::new(SqliteStore::open(file, Arc::new(SystemClock), limits).await?)),
        DatabaseUrl::Postgres(url) => {
            let options = PostgresOptions {
                transaction_pooler: settings.transaction_pooler,
                statement_timeout: (Duration::from(settings.lease) / 3).min(STATEMENT_TIME_MAX),
                ..PostgresOptions::default()
            };
            let store = PostgresStore::connect(url, options, limits).await?;
            let store = Arc::new(store);
            tokio::spawn(listen(store.clone(), hints.clone()));
            Ok(store)
        }
    }
}

/// Passes on what other nodes tell. Only hints: the polls carry what is lost here.
async fn listen(store: Arc<PostgresStore>, hints: Hints) {
    loop {
        match store.listen().await {
            Ok(None) => return,
            Ok(Some(mut heard)) => {
                while heard.changed().await.is_ok() {
                    hints.jobs_changed();
                    hints.run_waits();
                    hints.holders_changed();
                }
            }
            Err(error) => tracing::debug!(%error, "nobody is listening for notifications"),
        }
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

/// The mark of the commands that this node starts: its database, wherever it is named from, and in a cluster its name.
fn owner(settings: &Settings) -> String {
    match &settings.database {
        DatabaseUrl::Sqlite(file) => std::fs::canonicalize(file).unwrap_or_else(|_| file.clone()).display().to_string(),
        DatabaseUrl::Postgres(_) => format!("{} {}", settings.database.shown(), settings.node_name),
    }
}

/// Ends commands that a node leaves behind which does not stop gracefully.
pub(crate) fn abandon(settings: &Settings) {
    end_orphans(&owner(settings));
}

struct NodeStatus {
    engine: Arc<Engine>,
    node: String,
}

impl Status for NodeStatus {
    fn ready(&self) -> Result<(), String> {
        if self.engine.is_ready() { Ok(()) } else { Err("the jobs that come due are not loaded yet".to_owned()) }
    }
    fn node(&self) -> &str {
        &self.node
    }
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }
}

/// The operating system's randomness.
pub(crate) struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            // Ids without randomness would collide: better not to go on.
            panic!("the operating system gives no random bytes: {error}");
        }
    }
}
