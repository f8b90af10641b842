//! Dead schedules, on every store: lost ticks behind a cursor are found, recorded and delivered.

use std::{
    any::Any,
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{
    ids::RunId,
    job::{CatchUp, Job, JobSpec},
    partition::PARTITIONS,
    run::{State, Verdict},
    schedule::Timing,
    target::Outcome,
    time::{DbTime, Span},
};
use everytick_engine::{Engine, Hints, Parts, Settings, TokioSpawn, commands::Entropy, live::LiveLogs};
use everytick_sim::SimStore;
use everytick_store::{
    Limits, SqliteStore, Store, SystemClock, WallClock,
    conformance::{Bench, incarnation, overlapping, s, schedule, server::Server},
};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

/// Succeeds at every delivery and remembers the run.
#[derive(Default)]
pub(crate) struct Sink(Mutex<Vec<RunId>>);

#[async_trait::async_trait]
impl Target for Sink {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        self.0.lock().unwrap().push(dispatch.run);
        Outcome::Succeeded { output: None }
    }
}

struct FixedEntropy;

impl Entropy for FixedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

pub(super) type Opened = (Arc<dyn Store>, Box<dyn Any + Send + Sync>);

async fn sqlite(clock: Arc<dyn WallClock>, limits: Limits) -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("test.db"), clock, limits).await.unwrap();
    (Arc::new(store), Box::new(folder))
}

async fn postgres(clock: Arc<dyn WallClock>, limits: Limits) -> Opened {
    let (store, database) = Server::shared().store(clock, limits).await;
    (store, Box::new(database))
}

pub(super) async fn sim(clock: Arc<dyn WallClock>, limits: Limits) -> Opened {
    (Arc::new(SimStore::shared(clock, limits, PARTITIONS)), Box::new(()))
}

pub(super) fn parts(bench: &Bench, target: Arc<dyn Target>) -> Parts {
    Parts {
        store: bench.store.clone(),
        target,
        hints: Hints::default(),
        live: LiveLogs::default(),
        entropy: Arc::new(FixedEntropy),
        spawn: Arc::new(TokioSpawn),
        wall: Arc::new(SystemClock),
        process_lives: |_| None,
        settings: Settings::default(),
    }
}

pub(crate) async fn start(bench: &Bench, sink: Arc<Sink>) -> Engine {
    let engine = Engine::start(parts(bench, sink), incarnation(1)).await.unwrap();
    engine.loaded().await;
    engine
}

async fn ticks(bench: &Bench, job: &Job) -> BTreeSet<DbTime> {
    bench.history(job).await.iter().map(|run| run.scheduled_at).collect()
}

/// The cursor of a job was raised by hand past 60 unrecorded ticks.
async fn lost_ticks_are_recorded_and_delivered(bench: Bench) {
    let mut spec = overlapping("lost");
    spec.misfire.catch_up = CatchUp::All;
    let (lost, well) = (bench.create(spec).await, bench.create(overlapping("well")).await);
    bench.go(600);
    bench.raise(&lost, 1, Some(s(610))).await;
    let sink = Arc::new(Sink::default());
    let engine = start(&bench, sink.clone()).await;
    // The engine records the ticks of the other job, as rows or ranges.
    tokio::time::timeout(Duration::from_secs(30), async {
        while bench
            .store
            .load_overdue(s(601), None, 10)
            .await
            .unwrap()
            .iter()
            .any(|job| job.first_unrecorded().is_some_and(|at| at <= s(600)))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let before = ticks(&bench, &well).await;
    assert!(ticks(&bench, &lost).await.is_empty());

    assert_eq!(engine.detect().await.unwrap(), 1);
    let all: BTreeSet<_> = (1..=51).map(|n| s(n * 10)).collect();
    assert_eq!(ticks(&bench, &lost).await, all, "up to the margin of two leases and a minute");
    assert!(bench.epoch(&lost).await > 1);
    assert_eq!(engine.detect().await.unwrap(), 0, "one repair is enough");
    assert_eq!(ticks(&bench, &well).await, before, "the healthy job is unchanged");
    // The first ticks within the catch-up limit are delivered now, late and one after another.
    let succeeded = || async {
        let runs = bench.history(&lost).await;
        runs.iter().filter(|run| run.state == State::Succeeded).map(|run| run.id).collect::<BTreeSet<_>>()
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        while succeeded().await.is_empty() || bench.history(&lost).await.iter().any(|run| run.state.is_open()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let sent: BTreeSet<_> = sink.0.lock().unwrap().iter().copied().collect();
    assert!(succeeded().await.is_subset(&sent));
    engine.stop(Duration::from_secs(5)).await;
}

/// One one-shot job is kept for an hour, the other forever.
async fn one_shot_jobs_are_deleted_after_their_keep_time(bench: Bench) {
    let lease = bench.join("before", 7).await;
    let once =
        |name: &str, keep| JobSpec { schedule: Some(schedule(Timing::At { at: s(10) })), keep, ..overlapping(name) };
    let (goes, stays) =
        (bench.create(once("goes", Some(Span::hours(1)))).await, bench.create(once("stays", None)).await);
    bench.go(12);
    for job in [&goes, &stays] {
        let run = bench.claimed(&lease, job, 10).await;
        bench.settle(&run, Verdict::Succeeded).await;
        bench.raise(job, 1, None).await;
    }
    bench.go(71);
    let engine = start(&bench, Arc::default()).await;
    engine.detect().await.unwrap();
    assert!(bench.load(&goes).await.job.deleted_at.is_none());
    bench.go(4_000);
    // The node updates its estimate of the clock when it renews its lease.
    tokio::time::timeout(Duration::from_secs(30), async {
        while bench.load(&goes).await.job.deleted_at.is_none() {
            engine.detect().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    assert!(bench.load(&stays).await.job.deleted_at.is_none());
    let trail = bench.audit().await;
    assert!(trail.iter().any(|row| row.action == "delete" && row.actor == "node:local"), "{trail:?}");
    engine.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn expired_one_shot_jobs_are_deleted_in_sqlite() {
    one_shot_jobs_are_deleted_after_their_keep_time(Bench::open(sqlite).await).await;
}

#[tokio::test]
async fn expired_one_shot_jobs_are_deleted_in_postgresql() {
    one_shot_jobs_are_deleted_after_their_keep_time(Bench::open(postgres).await).await;
}

#[tokio::test]
async fn expired_one_shot_jobs_are_deleted_in_the_simulated_store() {
    one_shot_jobs_are_deleted_after_their_keep_time(Bench::open(sim).await).await;
}

#[tokio::test]
async fn lost_ticks_are_repaired_in_sqlite() {
    lost_ticks_are_recorded_and_delivered(Bench::open(sqlite).await).await;
}

#[tokio::test]
async fn lost_ticks_are_repaired_in_postgresql() {
    lost_ticks_are_recorded_and_delivered(Bench::open(postgres).await).await;
}

#[tokio::test]
async fn lost_ticks_are_repaired_in_the_simulated_store() {
    lost_ticks_are_recorded_and_delivered(Bench::open(sim).await).await;
}
