//! Redriving failed runs: each gets one new run, however often it is requested.

use everytick_domain::{
    ids::RunId,
    job::{JobSpec, Overlap},
    run::{CauseKind, State, Verdict},
};

use super::{Bench, LIMITS, OTHER_TENANT, TENANT, actor, by_name, new_run, overlapping, s, spec};
use crate::{NewRun, Redrive, Redriven, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_redrives {
    ($open:path) => {
        $crate::conformance_group! { $open, redrives:
            each_failed_run_gets_one_new_run,
            a_failed_run_is_redriven_once,
            under_cancel_previous_failed_runs_are_redriven_one_at_a_time,
            a_redrive_obeys_its_period_and_limit_and_returns_where_to_continue,
            a_dry_run_of_a_redrive_creates_nothing,
            a_dry_run_of_a_redrive_names_the_runs_that_the_redrive_creates,
            a_redriven_run_has_the_payload_of_the_failed_run,
            a_redrive_obeys_the_limit_of_waiting_requests,
            a_redrive_has_audit_rows,
            under_queue_a_redrive_raises_the_epoch,
            an_unknown_or_foreign_job_cannot_be_redriven,
        }
    };
}

fn since(seconds: i64) -> Redrive {
    Redrive { job: by_name("j"), from: s(seconds), to: None, limit: 10, dry_run: false }
}

async fn redrive(bench: &Bench, ask: &Redrive) -> Redriven {
    bench.store.redrive(TENANT, &actor(), ask).await.unwrap()
}

/// Records, claims and settles runs of the job at these seconds.
async fn settled(bench: &Bench, job: &everytick_domain::job::Job, runs: &[(i64, Verdict)]) -> Vec<RunId> {
    let lease = bench.join("a", 1).await;
    let mut ids = Vec::new();
    for (seconds, verdict) in runs {
        bench.go(*seconds);
        let run = bench.claimed(&lease, job, *seconds).await;
        bench.settle(&run, *verdict).await;
        ids.push(run.id);
    }
    ids
}

pub async fn each_failed_run_gets_one_new_run(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let runs = [(10, Verdict::Failed), (20, Verdict::Succeeded), (30, Verdict::Failed), (40, Verdict::Cancelled)];
    let ids = settled(bench, &job, &runs).await;
    bench.go(100);
    let redriven = redrive(bench, &since(0)).await;
    assert_eq!((redriven.job, redriven.job_name.as_str(), redriven.next_from), (job.id, "j", None));
    let pairs: Vec<_> = redriven.runs.iter().map(|run| (run.failed.id, run.run, run.state, run.made)).collect();
    let expected = [ids[0], ids[2]].map(|id| (id, RunId::redriven(job.id, id), Some(State::Waiting), true));
    assert_eq!(pairs, expected);
    assert_eq!(redriven.runs[0].failed.error.as_deref(), Some("it said no"));
    for pair in &redriven.runs {
        let run = bench.run(pair.run).await;
        assert_eq!((run.cause, run.state, run.attempt), (CauseKind::Request, State::Waiting, 0));
        assert_eq!((run.scheduled_at, run.due_at), (pair.failed.scheduled_at, s(100)));
        assert_eq!(bench.run(pair.failed.id).await.state, State::Failed, "a terminal state is final");
    }
    // Both wait although overlap is `skip`. They start one after another, after on-time runs.
    let lease = bench.join("b", 2).await;
    let due = bench.peek(&lease).await.due;
    assert_eq!(due.iter().map(|run| (run.id, run.late)).collect::<Vec<_>>(), expected.map(|pair| (pair.1, true)));
}

pub async fn under_cancel_previous_failed_runs_are_redriven_one_at_a_time(bench: &Bench) {
    let job = bench.create(JobSpec { overlap: Overlap::CancelPrevious, ..spec("j") }).await;
    let ids = settled(bench, &job, &[(10, Verdict::Failed), (20, Verdict::Failed)]).await;
    bench.go(100);
    let first = redrive(bench, &since(0)).await;
    assert_eq!((first.runs.len(), first.runs[0].failed.id, first.next_from), (1, ids[0], Some(s(20))));
    let refused = bench.store.redrive(TENANT, &actor(), &since(20)).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Invalid(why) if why[0].message.contains("cancel each other")),
        "{refused:?}"
    );
    let lease = bench.join("b", 2).await;
    let claimed = bench.claim(&lease, first.runs[0].run).await;
    bench.settle(&claimed, Verdict::Succeeded).await;
    assert_eq!(redrive(bench, &since(20)).await.runs[0].failed.id, ids[1]);
}

pub async fn a_failed_run_is_redriven_once(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    settled(bench, &job, &[(10, Verdict::Failed)]).await;
    bench.go(100);
    let first = redrive(bench, &since(0)).await.runs.remove(0);
    bench.go(200);
    let again = redrive(bench, &since(0)).await.runs.remove(0);
    assert_eq!((again.run, again.state, again.made), (first.run, Some(State::Waiting), false));
    assert_eq!(bench.history(&job).await.len(), 2);

    let lease = bench.join("b", 2).await;
    let claimed = bench.claim(&lease, first.run).await;
    bench.settle(&claimed, Verdict::Failed).await;
    // The new run failed too and gets its own new run. The first failed run keeps the run it has.
    let third = redrive(bench, &since(0)).await.runs;
    let stands: Vec<_> = third.iter().map(|run| (run.failed.id, run.state, run.made)).collect();
    let expected = [(first.failed.id, Some(State::Failed), false), (first.run, Some(State::Waiting), true)];
    let sorted = |mut pairs: Vec<_>| {
        pairs.sort_by_key(|pair: &(RunId, Option<State>, bool)| pair.0);
        pairs
    };
    assert_eq!(sorted(stands), sorted(expected.to_vec()));
}

pub async fn a_redrive_obeys_its_period_and_limit_and_returns_where_to_continue(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let failed = |at| (at, Verdict::Failed);
    let ids = settled(bench, &job, &[failed(10), failed(20), failed(30), failed(40)]).await;
    bench.go(100);
    let two = redrive(bench, &Redrive { to: Some(s(31)), limit: 1, ..since(20) }).await;
    assert_eq!(two.runs.iter().map(|run| run.failed.id).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(two.next_from, Some(s(30)));
    let rest = redrive(bench, &Redrive { to: Some(s(31)), limit: 1, from: s(30), ..since(0) }).await;
    assert_eq!(rest.runs.iter().map(|run| run.failed.id).collect::<Vec<_>>(), [ids[2]]);
    assert_eq!(rest.next_from, None);
}

pub async fn a_dry_run_of_a_redrive_creates_nothing(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    settled(bench, &job, &[(10, Verdict::Failed)]).await;
    let before = bench.audit().await.len();
    let dry = redrive(bench, &Redrive { dry_run: true, ..since(0) }).await;
    assert_eq!(dry.runs.iter().map(|run| (run.state, run.made)).collect::<Vec<_>>(), [(None, false)]);
    assert_eq!((bench.history(&job).await.len(), bench.audit().await.len()), (1, before));
}

pub async fn a_dry_run_of_a_redrive_names_the_runs_that_the_redrive_creates(bench: &Bench) {
    let job = bench.create(JobSpec { overlap: Overlap::CancelPrevious, ..spec("j") }).await;
    settled(bench, &job, &[(10, Verdict::Failed), (20, Verdict::Failed), (30, Verdict::Failed)]).await;
    bench.go(100);
    let dry_run = |from| Redrive { dry_run: true, ..since(from) };
    let named = |redriven: &Redriven| {
        (redriven.runs.iter().map(|run| (run.failed.id, run.run)).collect::<Vec<_>>(), redriven.next_from)
    };
    let dry = redrive(bench, &dry_run(0)).await;
    assert!(dry.runs.iter().all(|run| !run.made && run.state.is_none()), "{dry:?}");
    let real = redrive(bench, &since(0)).await;
    assert_eq!((named(&dry), real.runs.len()), (named(&real), 1));
    for ask in [dry_run(20), since(20)] {
        let refused = bench.store.redrive(TENANT, &actor(), &ask).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{ask:?}: {refused:?}");
    }
}

pub async fn a_redriven_run_has_the_payload_of_the_failed_run(bench: &Bench) {
    let (lease, _) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    let run = bench.trigger(NewRun { payload: Some("[1]".into()), ..new_run("j", "k") }).await;
    let claimed = bench.claim(&lease, run.id).await;
    bench.settle(&claimed, Verdict::Failed).await;
    let again = redrive(bench, &since(0)).await.runs.remove(0);
    assert_eq!(bench.claim(&lease, again.run).await.payload.as_deref(), Some("[1]"));
}

pub async fn a_redrive_obeys_the_limit_of_waiting_requests(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    let ids = settled(bench, &job, &[10, 20, 30, 40, 50].map(|at| (at, Verdict::Failed))).await;
    bench.go(100);
    bench.trigger(new_run("j", "k")).await;
    let some = redrive(bench, &since(0)).await;
    let remaining = usize::try_from(LIMITS.open_requests_per_job_max).unwrap() - 1;
    assert_eq!(some.runs.iter().map(|run| run.failed.id).collect::<Vec<_>>(), ids[..remaining]);
    assert_eq!(some.next_from, Some(s(30)));
    let full = bench.store.redrive(TENANT, &actor(), &since(30)).await;
    assert!(matches!(&full, Err(StoreError::Invalid(found)) if found[0].field == "job"), "{full:?}");
}

pub async fn a_redrive_has_audit_rows(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let ids = settled(bench, &job, &[(10, Verdict::Failed)]).await;
    let run = redrive(bench, &since(0)).await.runs.remove(0).run;
    let audit = bench.audit().await;
    let last = audit.last().unwrap();
    assert_eq!((last.action.as_str(), &last.subject), ("redrive", &run.to_string()));
    assert!(last.detail.contains(&ids[0].to_string()), "{}", last.detail);
}

pub async fn under_queue_a_redrive_raises_the_epoch(bench: &Bench) {
    let job = bench.create(JobSpec { overlap: Overlap::Queue { limit: 1 }, ..spec("j") }).await;
    settled(bench, &job, &[(10, Verdict::Failed)]).await;
    let before = bench.epoch(&job).await;
    redrive(bench, &since(0)).await;
    let after = bench.epoch(&job).await;
    assert!(after > before);
    redrive(bench, &since(0)).await;
    assert_eq!(bench.epoch(&job).await, after, "no new run waits");
}

pub async fn an_unknown_or_foreign_job_cannot_be_redriven(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    settled(bench, &job, &[(10, Verdict::Failed)]).await;
    let refused = bench.store.redrive(OTHER_TENANT, &actor(), &since(0)).await;
    assert!(matches!(refused, Err(StoreError::NotFound("job"))), "{refused:?}");
}
