//! A test harness: nodes in virtual time, with jobs that have no schedule.

use std::{sync::Arc, time::Duration};

use everytick_domain::{
    ids::RunId,
    job::JobSpec,
    time::{DbTime, Span},
};
use everytick_engine::{Engine, Hints, Parts, Settings, TokioSpawn, commands::Entropy, live::LiveLogs};
use everytick_sim::SimStore;
use everytick_store::{
    Limits, NewJob, RunRecord, Store, WallClock,
    conformance::{START, TENANT, actor, incarnation, job_id, new_run, overlapping},
};
use everytick_targets::Target;

/// A clock that follows virtual time.
struct VirtualClock(tokio::time::Instant);

impl WallClock for VirtualClock {
    fn now(&self) -> DbTime {
        START.plus(Span::millis(u64::try_from(self.0.elapsed().as_millis()).unwrap()))
    }
}

/// Entropy with the same bytes at each call.
pub struct FixedEntropy;

impl Entropy for FixedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A database, and the target that all its nodes deliver to.
pub struct Harness<T> {
    pub store: Arc<SimStore>,
    pub target: Arc<T>,
    clock: Arc<VirtualClock>,
}

impl<T: Target + Default + 'static> Harness<T> {
    pub async fn new() -> Self {
        Self::on(|clock| SimStore::new(clock, Limits::default())).await
    }

    /// A database that several nodes can share. It has one partition.
    pub async fn shared() -> Self {
        Self::on(|clock| SimStore::shared(clock, Limits::default(), 1)).await
    }

    #[expect(clippy::disallowed_methods, reason = "virtual time")]
    async fn on(store: impl FnOnce(Arc<dyn WallClock>) -> SimStore) -> Self {
        let clock = Arc::new(VirtualClock(tokio::time::Instant::now()));
        let store = Arc::new(store(clock.clone()));
        let harness = Self { store, target: Arc::default(), clock };
        harness.create("j").await;
        harness
    }

    /// Creates a job without a schedule.
    pub async fn create(&self, name: &str) {
        let spec = JobSpec { schedule: None, timeout: Span::hours(1), ..overlapping(name) };
        let job = NewJob { id: job_id(TENANT, name), spec };
        self.store.create_jobs(TENANT, &actor(), vec![job], None).await.unwrap().remove(0).unwrap();
    }

    /// Starts a process that replaces the previous one.
    pub async fn start(&self, process: u128) -> Engine {
        self.start_with(self.store.clone(), process, Settings::default()).await
    }

    /// Starts a process that reaches the database through this connection.
    pub async fn start_with(&self, store: Arc<SimStore>, process: u128, settings: Settings) -> Engine {
        let parts = Parts {
            process_lives: |_| None,
            store,
            target: self.target.clone(),
            hints: Hints::default(),
            live: LiveLogs::default(),
            entropy: Arc::new(FixedEntropy),
            spawn: Arc::new(TokioSpawn),
            wall: self.clock.clone(),
            settings,
        };
        let engine = Engine::start(parts, incarnation(process)).await.unwrap();
        engine.loaded().await;
        engine
    }

    /// Triggers a run and waits for `seconds`.
    pub async fn trigger(&self, seconds: u64) -> RunId {
        let run = self.store.trigger(TENANT, &actor(), new_run("j", "k")).await.unwrap().id;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        run
    }

    pub async fn run(&self, run: RunId) -> RunRecord {
        self.store.get_run(TENANT, run).await.unwrap()
    }
}
