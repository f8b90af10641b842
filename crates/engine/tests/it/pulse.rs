//! A node notices that it does not work: loops that panic or hang, an unreachable database, slots that stay busy, and
//! deliveries that panic. On the simulated store, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use everytick_domain::{
    job::JobSpec,
    mutant::{LoopFault, set_loop_fault},
    retry::RetryPolicy,
    run::State,
    target::Outcome,
    time::DbTime,
};
use everytick_engine::{Engine, Hints, Parts, Settings, TokioSpawn, commands::Entropy, live::LiveLogs};
use everytick_sim::{Call, Fate, Faults, NoFaults, Point, SimStore};
use everytick_store::{
    Limits, NewJob, RunFilter, RunRecord, Store, WallClock,
    conformance::{START, TENANT, actor, incarnation, job_id, overlapping},
};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

/// The database clock follows virtual time.
struct VirtualClock(tokio::time::Instant);

impl VirtualClock {
    #[expect(clippy::disallowed_methods, reason = "virtual time")]
    fn new() -> Arc<Self> {
        Arc::new(Self(tokio::time::Instant::now()))
    }
}

impl WallClock for VirtualClock {
    fn now(&self) -> DbTime {
        START.plus(self.0.elapsed().into())
    }
}

struct FixedEntropy;

impl Entropy for FixedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// What the target does.
#[derive(Clone, Copy)]
enum Behaviour {
    Succeed,
    /// Accepts the work and reports later.
    Accept,
    WorkUntilCancelled,
    /// Panics at the first attempt of each run.
    PanicAtFirst,
}

#[async_trait::async_trait]
impl Target for Behaviour {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome {
        match self {
            Self::Accept => Outcome::Accepted,
            Self::WorkUntilCancelled => {
                cancel.cancelled().await;
                Outcome::Cancelled { output: None }
            }
            Self::PanicAtFirst if dispatch.attempt == 1 => panic!("a target made to panic by a test"),
            Self::Succeed | Self::PanicAtFirst => Outcome::Succeeded { output: None },
        }
    }
}

struct Node {
    engine: Engine,
    hints: Hints,
    db: SimStore,
}

/// Starts a node with these jobs, without waiting for anything.
async fn start(faults: Arc<dyn Faults>, behaviour: Behaviour, slots: usize, specs: Vec<JobSpec>) -> Node {
    let clock = VirtualClock::new();
    let db = SimStore::new(clock.clone(), Limits::default());
    let jobs = specs.into_iter().map(|spec| NewJob { id: job_id(TENANT, &spec.name), spec }).collect();
    db.create_jobs(TENANT, &actor(), jobs, None).await.unwrap();
    let hints = Hints::default();
    let parts = Parts {
        process_lives: |_| None,
        store: Arc::new(db.connect(faults)),
        target: Arc::new(behaviour),
        hints: hints.clone(),
        live: LiveLogs::default(),
        entropy: Arc::new(FixedEntropy),
        spawn: Arc::new(TokioSpawn),
        wall: clock,
        settings: Settings { slots, ..Settings::default() },
    };
    let engine = Engine::start(parts, incarnation(1)).await.unwrap();
    Node { engine, hints, db }
}

async fn runs(node: &Node, job: &str) -> Vec<RunRecord> {
    let filter = RunFilter { job: Some(job_id(TENANT, job)), ..Default::default() };
    node.db.list_runs(TENANT, &filter, None, 1_000).await.unwrap().items
}

/// Runs a node with one faulty loop and work for every loop. Returns why the node failed.
async fn broken_by(fault: LoopFault) -> String {
    set_loop_fault(Some(fault));
    let accepts = matches!(fault, LoopFault::Panic("accept") | LoopFault::Hang("accept"));
    let behaviour = if accepts { Behaviour::Accept } else { Behaviour::Succeed };
    let node = start(Arc::new(NoFaults), behaviour, 10, vec![overlapping("j")]).await;
    // A run was ended elsewhere: work for the loop that stops deliveries.
    let job = job_id(TENANT, "j");
    node.hints.runs_ended(job, [everytick_domain::ids::RunId::floor(START)]);
    let broken = tokio::time::timeout(Duration::from_secs(600), node.engine.broken()).await;
    set_loop_fault(None);
    assert!(broken.is_ok(), "{fault:?} was not noticed");
    let reason = node.engine.broken_by();
    assert_eq!(node.engine.ready().unwrap_err(), reason);
    node.engine.stop(Duration::ZERO).await;
    reason
}

async fn names() -> Vec<&'static str> {
    let node = start(Arc::new(NoFaults), Behaviour::Succeed, 10, vec![]).await;
    let mut names = node.engine.loops();
    node.engine.stop(Duration::ZERO).await;
    names.dedup();
    assert!(names.len() >= 16, "{names:?}");
    names
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_any_loop_makes_the_node_fail() {
    for name in names().await {
        assert_eq!(broken_by(LoopFault::Panic(name)).await, format!("the loop {name:?} panicked"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_in_any_loop_makes_the_node_fail() {
    // The checking loop cannot notice its own hang; the binary watches it from a thread.
    for name in names().await.into_iter().filter(|name| *name != "pulse") {
        let reason = broken_by(LoopFault::Hang(name)).await;
        match name {
            "settle" => assert!(reason.ends_with("runs have ended and nothing was settled within 60s"), "{reason}"),
            _ => assert_eq!(reason, format!("the loop {name:?} hangs: no step within 70s")),
        }
    }
}

/// A database that refuses every call at once, or does not answer in time.
#[derive(Default)]
struct Unreachable {
    refuses: AtomicBool,
    silent: AtomicBool,
}

impl Faults for Unreachable {
    fn call(&self, _: Point) -> Option<Call> {
        let silent = self.silent.load(Ordering::Relaxed);
        let travel = Duration::from_secs(if silent { 6 } else { 0 });
        let fails = silent || self.refuses.load(Ordering::Relaxed);
        fails.then_some(Call { travel, fate: Fate::FailedBefore, back: Duration::ZERO })
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_database_is_unreachable_the_node_is_not_ready_and_keeps_running() {
    let database = Arc::new(Unreachable::default());
    let node = start(database.clone(), Behaviour::Succeed, 10, vec![overlapping("j")]).await;
    for kind in [&database.refuses, &database.silent] {
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert_eq!(node.engine.ready(), Ok(()));
        kind.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let reason = node.engine.ready().unwrap_err();
        for expected in ["loading jobs has failed for", "claiming runs has failed for", "lease"] {
            assert!(reason.contains(expected), "{reason}");
        }
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(node.engine.ready().is_err());
            assert_eq!(node.engine.broken_by(), "", "the node waits for the database");
        }
        kind.store(false, Ordering::Relaxed);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.engine.ready(), Ok(()));
    assert!(runs(&node, "j").await.iter().any(|run| run.state == State::Succeeded));
    node.engine.stop(Duration::ZERO).await;
}

/// Only one kind of call fails.
struct Fails(Point, AtomicBool);

impl Faults for Fails {
    fn call(&self, point: Point) -> Option<Call> {
        let fails = point == self.0 && self.1.load(Ordering::Relaxed);
        fails.then_some(Call { travel: Duration::ZERO, fate: Fate::FailedBefore, back: Duration::ZERO })
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_ready_when_ticks_claims_or_loads_have_failed_for_15_seconds() {
    for (point, what) in
        [(Point::Record, "recording ticks"), (Point::Peek, "claiming runs"), (Point::Load, "loading jobs")]
    {
        let fails = Arc::new(Fails(point, AtomicBool::new(false)));
        let node = start(fails.clone(), Behaviour::Succeed, 10, vec![overlapping("j")]).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(node.engine.ready(), Ok(()));
        fails.1.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let reason = node.engine.ready().unwrap_err();
        assert!(reason.contains(&format!("{what} has failed for")), "{point:?}: {reason}");
        assert_eq!(node.engine.broken_by(), "");
        fails.1.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(node.engine.ready(), Ok(()), "{point:?}");
        node.engine.stop(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_slots_stay_busy_for_a_minute_is_not_ready() {
    let specs = vec![overlapping("j"), overlapping("k")];
    let node = start(Arc::new(NoFaults), Behaviour::WorkUntilCancelled, 2, specs).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.engine.ready(), Ok(()), "busy for 50 s");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let reason = node.engine.ready().unwrap_err();
    assert!(reason.starts_with("all 2 slots have been busy for"), "{reason}");
    assert_eq!(node.engine.broken_by(), "", "slow receivers do not end the process");
    node.engine.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_panics_is_a_failed_attempt_and_is_retried() {
    let spec = |retries| JobSpec { retry: RetryPolicy::with_retries(retries), ..overlapping(&format!("r{retries}")) };
    let node = start(Arc::new(NoFaults), Behaviour::PanicAtFirst, 2, vec![spec(1), spec(0)]).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let again = runs(&node, "r1").await;
    let oldest = again.last().unwrap();
    assert_eq!((oldest.state, oldest.attempt), (State::Succeeded, 2), "{again:?}");
    let once = runs(&node, "r0").await;
    let oldest = once.last().unwrap();
    assert_eq!(oldest.state, State::Failed, "{once:?}");
    assert!(oldest.error.as_ref().unwrap().contains("a panic"), "{oldest:?}");
    assert_eq!(node.engine.ready(), Ok(()), "no slot stays in use");
    node.engine.stop(Duration::ZERO).await;
}
