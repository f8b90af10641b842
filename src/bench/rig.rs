//! The parts that all benchmarks share: a new runtime for each measurement, the limit (rate of plain inserts), the
//! registration of jobs in batches, and a node in this process.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::Context;
use everytick_domain::{
    ids::{Cause, Incarnation, JobId, RunId, TenantId},
    job::JobSpec,
    time::{DbTime, Span},
};
use everytick_engine::{Engine, Hints, Parts, Spawn, commands::Entropy, live::LiveLogs};
use everytick_store::{Actor, NewJob, PlainTick, SystemClock};
use everytick_targets::Target;
use metrics_exporter_prometheus::PrometheusHandle;

use super::{
    database::{BenchDatabase, Open},
    interrupt::interrupted,
    jobs::IDLE_AT_LEAST,
    progress::Progress,
};
use crate::{node::OsEntropy, telemetry};

/// Rows per batch, equal to the batches of a node.
pub(super) const BATCH: usize = 1_000;
/// The limit is measured for `LIMIT_TIME`, after a warm-up that is not counted.
const LIMIT_WARM: Duration = Duration::from_millis(300);
const LIMIT_TIME: Duration = Duration::from_secs(2);
/// Number of different jobs of the plain rows. With so many jobs, each batch touches different pages of the index by job.
const LIMIT_JOBS: u64 = 100_000;
/// Limit of tries to delete the runs of a measurement.
const DELETE_TRIES: u32 = 5;
/// Tasks of a measurement have this long to end.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Runs one measurement until it ends or the process receives a signal. Its remaining tasks end with its runtime.
pub(super) fn measure<T>(what: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let interrupted = interrupted()?;
    finish(async {
        tokio::select! {
            biased;
            () = interrupted.cancelled() => Err(anyhow::anyhow!("interrupted")),
            done = what => done,
        }
    })
}

/// Runs work that a signal must not interrupt, such as cleaning up.
pub(super) fn finish<T>(what: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(what);
    runtime.shutdown_timeout(STOP_MAX);
    done
}

/// The metrics of this process, as `/metrics` of a server shows them.
pub(super) fn metrics() -> anyhow::Result<&'static PrometheusHandle> {
    static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = METRICS.get() {
        return Ok(handle);
    }
    let handle = telemetry::start()?;
    Ok(METRICS.get_or_init(|| handle))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(super) fn clock() -> Instant {
    Instant::now()
}

/// The limit: rows per second that plain inserts in batches reach now, over one connection.
pub(super) async fn limit(open: &Open) -> anyhow::Result<f64> {
    let spread =
        |n: u64| JobId::from_uuid(uuid::Uuid::from_u128(u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64));
    let now = open.store.now().await?;
    let batch = |number: u64| -> Vec<PlainTick> {
        let tick = now.plus(Span::millis(number));
        let jobs = (number * BATCH as u64..).take(BATCH).map(|n| spread(n % LIMIT_JOBS));
        jobs.map(|job| PlainTick { run: RunId::of(job, Cause::Tick(tick)), job, tick }).collect()
    };
    open.probe.begin_limit().await?;
    let mut number = 0;
    for (time, measured) in [(LIMIT_WARM, false), (LIMIT_TIME, true)] {
        let (begun, first) = (clock(), number);
        while begun.elapsed() < time {
            open.probe.insert_plainly(&batch(number)).await?;
            number += 1;
        }
        if measured {
            let rate = ((number - first) * BATCH as u64) as f64 / begun.elapsed().as_secs_f64();
            open.probe.end_limit().await?;
            return Ok(rate);
        }
    }
    anyhow::bail!("the limit was not measured")
}

/// Registers jobs through the store, and returns jobs per second.
pub(super) async fn register(
    open: &Open,
    count: u64,
    progress: &Progress,
    mut spec: impl FnMut(u64, DbTime) -> JobSpec,
) -> anyhow::Result<f64> {
    if count == 0 {
        return Ok(f64::INFINITY);
    }
    let (begun, mut made) = (clock(), 0);
    progress.begin("registering jobs", count);
    while made < count {
        let now = open.store.now().await?;
        let size = (count - made).min(BATCH as u64);
        let mut random = vec![0; size as usize * 10];
        OsEntropy.fill(&mut random);
        let new = |(n, random): (u64, &[u8])| {
            let random: [u8; 10] = random.try_into().context("ten bytes")?;
            Ok(NewJob { id: JobId::new(now, random), spec: spec(n, now) })
        };
        let jobs: anyhow::Result<Vec<NewJob>> = (made..).zip(random.chunks(10)).map(new).collect();
        let created = open.store.create_jobs(TenantId::DEFAULT, &Actor::local("bench"), jobs?, None).await?;
        created.into_iter().collect::<Result<Vec<_>, _>>()?;
        made += size;
        progress.at(made);
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Settings of a benchmark's node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeSetup {
    pub(super) slots: usize,
    pub(super) lease: Span,
}

impl Default for NodeSetup {
    fn default() -> Self {
        Self { slots: 10_000, lease: Span::seconds(15) }
    }
}

pub(super) async fn start(
    open: &Open,
    target: Arc<dyn Target>,
    spawn: Arc<dyn Spawn>,
    setup: NodeSetup,
) -> anyhow::Result<Engine> {
    metrics()?;
    let poll = if open.store.partitions() == 1 { Duration::from_secs(1) } else { Duration::from_millis(200) };
    let parts = Parts {
        store: open.store.clone(),
        target,
        hints: Hints::default(),
        live: LiveLogs::default(),
        entropy: Arc::new(OsEntropy),
        spawn,
        wall: Arc::new(SystemClock),
        process_lives: |_| None,
        settings: everytick_engine::Settings {
            node: "bench".to_owned(),
            slots: setup.slots,
            lease: setup.lease,
            poll,
            claim_poll: poll,
            replace_node: true,
            ..everytick_engine::Settings::default()
        },
    };
    let mut random = [0; 16];
    OsEntropy.fill(&mut random);
    let incarnation = Incarnation::from_uuid(uuid::Builder::from_random_bytes(random).into_uuid());
    Engine::start(parts, incarnation).await.context("could not start a node")
}

/// Deletes the runs of a measurement after its node has ended, so that another can follow.
pub(super) fn delete_runs(database: &BenchDatabase) -> anyhow::Result<()> {
    measure(async {
        let mut tries = 0;
        loop {
            tries += 1;
            let open = database.open().await?;
            let until = open.store.now().await?.plus(IDLE_AT_LEAST).minus(Span::hours(1));
            match open.probe.forget_runs(until).await {
                // The last statements of the node may still be executing.
                Err(_) if tries < DELETE_TRIES => tokio::time::sleep(STOP_MAX).await,
                deleted => return Ok(deleted?),
            }
        }
    })
}

/// The first whole second at least `ahead` from now.
pub(super) async fn second_ahead(open: &Open, ahead: Duration) -> anyhow::Result<DbTime> {
    let at = open.store.now().await?.plus(Span::millis(ahead.as_millis() as u64));
    Ok(DbTime::from_millis((at.millis() / 1_000 + 1) * 1_000))
}

/// Sleeps until `at` on the database clock.
pub(super) async fn sleep_until(open: &Open, at: DbTime) -> anyhow::Result<()> {
    let now = open.store.now().await?;
    tokio::time::sleep(Duration::from(at.since(now))).await;
    Ok(())
}
