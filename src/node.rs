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
use everytick_store::{JobFilter, JobRecord, Limits, SqliteStore, Store, SystemClock};
use everytick_targets::{AddressPolicy, Shell, TERM_GRACE, Targets, Webhook, end_orphans};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::serve::{Running, SOONEST_MAX, Soonest},
    config::Settings,
    telemetry,
};

/// How long requests in progress may take to end when the node stops.
const REQUESTS_DRAIN: Duration = Duration::from_secs(5);
/// How long the first load of the horizon is waited for before the banner is printed without it.
const FIRST_LOAD: Duration = Duration::from_secs(5);

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
    let store = SqliteStore::open(&settings.database, Arc::new(SystemClock), Limits::default()).await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let webhook = Webhook::new(AddressPolicy::new(settings.allow_webhook_ranges.clone()))?;
    let owner = owner(settings);
    match end_orphans(&owner) {
        0 => {}
        count => tracing::warn!("killed {count} processes of commands that outlived the last server"),
    }
    let shell = settings.enable_shell.then(|| Shell::new(TERM_GRACE).owned_by(owner));
    let (hints, live, entropy) = (Hints::default(), LiveLogs::default(), Arc::new(OsEntropy));
    let mut incarnation = [0; 16];
    entropy.fill(&mut incarnation);
    let parts = Parts {
        store: store.clone(),
        target: Arc::new(Targets::new(webhook, shell)),
        hints: hints.clone(),
        live: live.clone(),
        entropy: entropy.clone(),
        spawn: Arc::new(TokioSpawn),
        settings: everytick_engine::Settings {
            node: settings.node_name.clone(),
            lease: settings.lease,
            slots: settings.slots as usize,
            history: settings.history,
            ..everytick_engine::Settings::default()
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
        listen: listener.local_addr()?,
    };
    let drain = Duration::from(settings.drain_timeout);
    let ended = tokio::spawn(async move {
        let closing = CancellationToken::new();
        let served =
            axum::serve(listener, everytick_api::router(api)).with_graceful_shutdown(closing.clone().cancelled_owned());
        let mut served = tokio::spawn(served.into_future());
        let broke = tokio::select! {
            () = stopping.cancelled() => None,
            () = engine.broken() => Some(anyhow::anyhow!("a loop of the engine broke down; see the log")),
            ended = &mut served => Some(anyhow::anyhow!("the API ended: {ended:?}")),
        };
        // The API answers on while runs end: a receiver that reports later must be heard.
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

/// The mark of this installation's commands: its database, wherever it is named from.
fn owner(settings: &Settings) -> String {
    let path = std::fs::canonicalize(&settings.database).unwrap_or_else(|_| settings.database.clone());
    path.display().to_string()
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
struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            // Ids without randomness would collide: better not to go on.
            panic!("the operating system gives no random bytes: {error}");
        }
    }
}
