//! How many calls of the store a command costs. Each call is at least one round trip to the database.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, Ordering},
};

use everytick_domain::{
    edit::Change,
    ids::RunId,
    job::JobSpec,
    run::State,
    target::{QueueTarget, TargetSpec},
};
use everytick_engine::{
    Hints,
    commands::{Commands, Entropy, Report, Trigger, Work},
    live::LiveLogs,
    types::EditJob,
};
use everytick_sim::{Call, Faults, Point, SimStore};
use everytick_store::{
    Limits, ManualClock, WorkerClaim,
    conformance::{START, TENANT, actor, by_name, overlapping},
};

/// Entropy with different bytes at each call.
#[derive(Default)]
struct CountingEntropy(AtomicU8);

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

/// Notes every call of the store.
#[derive(Default)]
struct Calls(Mutex<Vec<Point>>);

impl Faults for Calls {
    fn call(&self, point: Point) -> Option<Call> {
        self.0.lock().unwrap().push(point);
        None
    }
}

struct Counted {
    commands: Commands,
    calls: Arc<Calls>,
}

impl Counted {
    /// The commands of a process, and a queue job without a schedule.
    async fn new() -> Self {
        let calls = Arc::new(Calls::default());
        let store = SimStore::new(Arc::new(ManualClock::at(START)), Limits::default()).connect(calls.clone());
        let commands =
            Commands::new(Arc::new(store), Hints::default(), Arc::new(CountingEntropy::default()), LiveLogs::default());
        let target = TargetSpec::Queue(QueueTarget { name: "q".into() });
        let spec = JobSpec { schedule: None, target, ..overlapping("j") };
        commands.create_jobs(TENANT, &actor(), vec![spec], None).await.unwrap().remove(0).unwrap();
        Self { commands, calls }
    }

    async fn trigger(&self, force: bool) -> RunId {
        let request = Trigger { job: by_name("j"), payload: None, force, idempotency: None };
        self.commands.trigger(TENANT, &actor(), request).await.unwrap().id
    }

    /// Triggers a run and claims it as a worker.
    async fn claim(&self) -> WorkerClaim {
        self.trigger(true).await;
        let wait = std::time::Duration::ZERO;
        let work = self.commands.claim_work(TENANT, "q".into(), "w".into(), 1, wait).await.unwrap();
        let Work::Claims(mut found) = work else { panic!("too many workers wait") };
        found.claims.remove(0)
    }

    /// The calls of the store since `made` was last called.
    fn made(&self) -> Vec<Point> {
        std::mem::take(&mut *self.calls.0.lock().unwrap())
    }
}

fn report(claim: &WorkerClaim, succeeded: bool) -> Report {
    Report { fence: claim.run.fence, succeeded, output: None, error: None, retry: false }
}

#[tokio::test]
async fn a_trigger_and_an_edit_are_one_call_each() {
    let counted = Counted::new().await;
    counted.made();
    counted.trigger(false).await;
    assert_eq!(counted.made(), [Point::Ask]);
    let edit = EditJob { job: by_name("j"), change: Change::Pause { note: None }, if_match: None, cancel: false };
    counted.commands.edit_job(TENANT, &actor(), edit).await.unwrap();
    assert_eq!(counted.made(), [Point::Edit]);
}

#[tokio::test]
async fn a_report_of_success_is_one_call_and_reads_the_run_for_the_answer() {
    let counted = Counted::new().await;
    let claim = counted.claim().await;
    counted.made();
    let run = counted.commands.report_result(TENANT, claim.run.id, report(&claim, true)).await.unwrap().unwrap();
    assert_eq!(run.state, State::Succeeded);
    assert_eq!(counted.made(), [Point::Settle, Point::Read]);
}

#[tokio::test]
async fn a_report_of_failure_is_two_calls_and_reads_the_run_for_the_answer() {
    let counted = Counted::new().await;
    let claim = counted.claim().await;
    counted.made();
    let run = counted.commands.report_result(TENANT, claim.run.id, report(&claim, false)).await.unwrap().unwrap();
    assert_eq!(run.state, State::Failed);
    assert_eq!(counted.made(), [Point::Load, Point::Settle, Point::Read]);
}

#[tokio::test]
async fn a_batch_of_reports_is_one_call_or_two_however_many_runs_it_has() {
    let counted = Counted::new().await;
    for (failed, calls) in [(false, vec![Point::Settle]), (true, vec![Point::Load, Point::Settle])] {
        let claims = [counted.claim().await, counted.claim().await, counted.claim().await];
        counted.made();
        let reports = claims.iter().enumerate().map(|(n, claim)| (claim.run.id, report(claim, !failed || n > 0)));
        let answers = counted.commands.report_results(TENANT, reports.collect()).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Some(_)))), "{answers:?}");
        assert_eq!(counted.made(), calls);
    }
}
