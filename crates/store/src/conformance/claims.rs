//! Waiting runs, claims on them, and the lost claims of dead nodes.

use everytick_domain::{
    ids::{JobId, RunId},
    job::Job,
    plan::Fate,
    run::{CauseKind, State, Verdict},
};

use super::{Bench, OTHER_TENANT, START, TENANT, TTL, incarnation, new_run, overlapping, s, spec, tick, ticks};
use crate::{Beat, Busy, LATE_PER_TENANT_MAX, NewRun, NodeInfo, StoreError, WaitingRun};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_claims {
    ($open:path) => {
        $crate::conformance_group! { $open, claims:
            on_time_runs_come_first_then_by_priority_then_the_oldest,
            late_runs_rotate_between_tenants,
            a_run_that_is_not_due_is_neither_returned_nor_claimed,
            runs_of_busy_jobs_are_skipped_except_forced_runs_and_retries,
            runs_of_many_busy_jobs_are_skipped_in_any_order,
            a_search_for_waiting_runs_obeys_its_limit,
            a_lost_lease_reads_no_waiting_runs,
            a_claim_raises_fence_and_attempt_and_removes_the_run_from_waiting,
            a_run_is_claimed_once,
            a_node_can_check_which_claims_it_still_has,
            claims_are_returned_in_the_requested_order,
            a_lost_lease_claims_nothing,
            unknown_and_ended_runs_are_not_claimed,
            a_claim_returns_the_payload_of_the_run,
            an_incarnation_can_load_its_claims,
            the_claims_of_an_ended_lease_are_lost,
            a_lost_claim_on_an_old_run_is_found,
            a_node_that_left_loses_its_claims,
            a_live_nodes_own_claims_are_not_lost,
            a_search_for_lost_claims_obeys_its_limit,
            a_settled_run_is_no_longer_lost,
            a_renewal_may_raise_the_bound_past_ended_runs,
        }
    };
}

pub async fn on_time_runs_come_first_then_by_priority_then_the_oldest(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut jobs = Vec::new();
    for (name, priority) in [("low", 1), ("high", 9), ("late", 9)] {
        let mut spec = overlapping(name);
        spec.priority = priority;
        jobs.push(bench.create(spec).await);
    }
    bench.go(200);
    let row = |job: usize, seconds, fate| ticks(&jobs[job], 1, vec![tick(&jobs[job], seconds, fate)]);
    let batch = [
        row(2, 10, Fate::Late),
        row(0, 150, Fate::Run),
        row(1, 170, Fate::Run),
        row(1, 160, Fate::Run),
        row(2, 150, Fate::Run),
    ];
    bench.store.record(&lease, &batch).await.unwrap();
    let due: Vec<_> = bench.peek(&lease).await.due.iter().map(|run| (run.late, run.priority, run.due_at)).collect();
    let expected = [(false, 9, s(150)), (false, 9, s(160)), (false, 9, s(170)), (false, 1, s(150)), (true, 9, s(10))];
    assert_eq!(due, expected);
}

pub async fn late_runs_rotate_between_tenants(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let ours = bench.create(overlapping("ours")).await;
    let theirs = bench.created(OTHER_TENANT, overlapping("theirs")).await.unwrap().job;
    // A backlog longer than the number of late runs read per tenant.
    let long = i64::try_from(LATE_PER_TENANT_MAX).unwrap() + 20;
    bench.go(long * 10);
    let late = |job: &Job, count| ticks(job, 1, (1..=count).map(|n| tick(job, n * 10, Fate::Late)).collect());
    bench.record(&lease, late(&ours, long)).await;
    bench.record(&lease, late(&theirs, 2)).await;
    for (after, limit, expected) in [
        (None, 5, "o10 t10 o20 t20 o30"),
        (Some(TENANT), 5, "t10 o10 t20 o20 o30"),
        (Some(OTHER_TENANT), 3, "o10 t10 o20"),
        (Some(TENANT), 1, "t10"),
    ] {
        let due = bench.store.peek_waiting(&lease, &bench.all(), &[], after, limit).await.unwrap().due;
        let word = |run: &WaitingRun| {
            format!("{}{}", if run.tenant == TENANT { 'o' } else { 't' }, run.due_at.since(START).as_millis() / 1_000)
        };
        assert_eq!(due.iter().map(word).collect::<Vec<_>>().join(" "), expected, "after {after:?}");
    }
    bench.waiting(&lease, &theirs, 30).await;
    let due = bench.store.peek_waiting(&lease, &bench.all(), &[], Some(OTHER_TENANT), 2).await.unwrap().due;
    assert_eq!(due.iter().map(|run| run.late).collect::<Vec<_>>(), [false, true], "on-time runs come first");
    let due = bench
        .store
        .peek_waiting(&lease, &bench.all(), &[Busy { job: ours.id, full: false }], None, 9)
        .await
        .unwrap()
        .due;
    assert!(due.iter().all(|run| run.job == theirs.id), "runs of busy jobs do not come");
}

pub async fn a_run_that_is_not_due_is_neither_returned_nor_claimed(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let mut rows = vec![tick(&job, 10, Fate::Run), tick(&job, 20, Fate::Run)];
    rows[0].tick.due_at = s(30);
    rows[1].tick.due_at = s(25);
    let ids: Vec<_> = rows.iter().map(|row| row.tick.id).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    let peeked = bench.peek(&lease).await;
    assert_eq!((peeked.now, peeked.due.len(), peeked.next_due), (s(20), 0, Some(s(25))));
    assert!(bench.store.claim(&lease, &bench.all(), &ids).await.unwrap().is_empty());
    bench.go(25);
    let peeked = bench.peek(&lease).await;
    assert_eq!((peeked.due[0].id, peeked.next_due), (ids[1], Some(s(30))));
    let claimed: Vec<_> =
        bench.store.claim(&lease, &bench.all(), &ids).await.unwrap().iter().map(|run| run.id).collect();
    assert_eq!(claimed, [ids[1]]);
    bench.go(30);
    assert_eq!(bench.peek(&lease).await.next_due, None);
}

pub async fn runs_of_busy_jobs_are_skipped_except_forced_runs_and_retries(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (busy, idle) = (bench.create(overlapping("busy")).await, bench.create(spec("idle")).await);
    bench.go(20);
    bench.waiting(&lease, &busy, 10).await;
    let runs = bench.waiting(&lease, &idle, 10).await;
    let forced = bench.trigger(NewRun { force: true, ..new_run("busy", "k") }).await;
    let retried = bench.claimed(&lease, &busy, 20).await;
    bench.settle(&retried, Verdict::Redeliver).await;
    let mut due = bench
        .store
        .peek_waiting(&lease, &bench.all(), &[Busy { job: busy.id, full: false }], None, 10)
        .await
        .unwrap()
        .due;
    due.sort_by_key(|run| (run.force, run.attempts));
    let came: Vec<_> = due.iter().map(|run| (run.id, run.attempts, run.force)).collect();
    assert_eq!(came, [(runs, 0, false), (retried.id, 1, false), (forced.id, 0, true)]);
    // A job that uses all its slots.
    let full = [Busy { job: busy.id, full: true }];
    let due = bench.store.peek_waiting(&lease, &bench.all(), &full, None, 10).await.unwrap().due;
    assert_eq!(due.iter().map(|run| run.id).collect::<Vec<_>>(), [runs]);
}

pub async fn runs_of_many_busy_jobs_are_skipped_in_any_order(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut jobs = Vec::new();
    for n in 0..8 {
        jobs.push(bench.create(spec(&format!("j{n}"))).await);
    }
    let idle = bench.create(spec("idle")).await;
    bench.go(20);
    for job in &jobs {
        bench.waiting(&lease, job, 10).await;
    }
    let expected = [bench.waiting(&lease, &idle, 10).await];
    for full in [false, true] {
        for _ in 0..jobs.len() {
            jobs.rotate_left(3);
            let busy: Vec<_> = jobs.iter().map(|job| Busy { job: job.id, full }).collect();
            let due = bench.store.peek_waiting(&lease, &bench.all(), &busy, None, 20).await.unwrap().due;
            assert_eq!(due.iter().map(|run| run.id).collect::<Vec<_>>(), expected);
        }
    }
}

pub async fn a_search_for_waiting_runs_obeys_its_limit(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(40);
    let rows = (1..=4).map(|n| tick(&job, n * 10, Fate::Run)).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    let due = bench.store.peek_waiting(&lease, &bench.all(), &[], None, 3).await.unwrap().due;
    assert_eq!(due.iter().map(|run| run.due_at).collect::<Vec<_>>(), [s(10), s(20), s(30)]);
}

pub async fn a_lost_lease_reads_no_waiting_runs(bench: &Bench) {
    let old = bench.join("a", 1).await;
    bench.join("a", 2).await;
    assert!(matches!(bench.store.peek_waiting(&old, &bench.all(), &[], None, 1).await, Err(StoreError::LeaseLost)));
}

pub async fn a_claim_raises_fence_and_attempt_and_removes_the_run_from_waiting(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    let before = bench.run(id).await;
    bench.go(13);
    let claimed = bench.claim(&lease, id).await;
    assert!(claimed.fence > before.fence);
    assert_eq!((claimed.job, claimed.tenant, claimed.cause), (job.id, TENANT, CauseKind::Tick));
    assert_eq!((claimed.scheduled_at, claimed.attempt, claimed.lost, claimed.payload), (s(10), 1, 0, None));
    let run = bench.run(id).await;
    assert_eq!((run.state, run.attempt, run.fence, run.node.as_deref()), (State::Claimed, 1, claimed.fence, Some("a")));
    assert!(bench.due(&lease).await.is_empty());
}

pub async fn a_run_is_claimed_once(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    assert_eq!(bench.store.claim(&lease, &bench.all(), &[id, id]).await.unwrap().len(), 1);
    assert!(bench.store.claim(&lease, &bench.all(), &[id]).await.unwrap().is_empty());
    assert_eq!(bench.run(id).await.attempt, 1);
}

pub async fn a_node_can_check_which_claims_it_still_has(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(overlapping("j")).await;
    bench.go(20);
    let (ours, over) = (bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &job, 20).await);
    bench.settle(&over, Verdict::Succeeded).await;
    let ids = [ours.id, over.id, RunId::floor(START)];
    assert_eq!(bench.store.still_claimed(&lease, &ids).await.unwrap(), [(ours.id, ours.fence)]);
    assert!(bench.store.still_claimed(&lease, &[]).await.unwrap().is_empty());
}

pub async fn claims_are_returned_in_the_requested_order(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(50);
    let rows: Vec<_> = (1..=5).map(|n| tick(&job, n * 10, Fate::Run)).collect();
    let mut ids: Vec<_> = rows.iter().map(|row| row.tick.id).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    ids.swap(0, 3);
    ids.swap(1, 4);
    let claimed: Vec<_> =
        bench.store.claim(&lease, &bench.all(), &ids).await.unwrap().iter().map(|run| run.id).collect();
    assert_eq!(claimed, ids);
}

pub async fn a_lost_lease_claims_nothing(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    bench.go(15);
    assert!(matches!(bench.store.claim(&lease, &bench.all(), &[id]).await, Err(StoreError::LeaseLost)));
    assert_eq!(bench.run(id).await.state, State::Waiting);
}

pub async fn unknown_and_ended_runs_are_not_claimed(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Succeeded).await;
    assert!(bench.store.claim(&lease, &bench.all(), &[run.id, RunId::floor(START)]).await.unwrap().is_empty());
}

pub async fn a_claim_returns_the_payload_of_the_run(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.create(spec("j")).await;
    let run = bench.trigger(NewRun { payload: Some("{\"n\":1}".into()), ..new_run("j", "k") }).await;
    let claimed = bench.claim(&lease, run.id).await;
    assert_eq!((claimed.cause, claimed.payload.as_deref()), (CauseKind::Request, Some("{\"n\":1}")));
    assert_eq!(bench.run(run.id).await.payload.as_deref(), Some("{\"n\":1}"), "a rerun reads it from the run");
}

pub async fn an_incarnation_can_load_its_claims(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let first = bench.claimed(&lease, &job, 10).await;
    let id = bench.waiting(&lease, &job, 20).await;
    let second = bench.claim(&lease, id).await;
    let over = bench.claimed(&lease, &job, 30).await;
    bench.settle(&over, Verdict::Succeeded).await;
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap(), [first, second]);
    let next = bench.join("a", 2).await;
    assert!(bench.store.load_claimed(&next).await.unwrap().is_empty());
}

pub async fn the_claims_of_an_ended_lease_are_lost(bench: &Bench) {
    let (old, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let claimed = [bench.claimed(&old, &job, 10).await, bench.claimed(&old, &job, 20).await];
    let new = bench.join("a", 2).await;
    assert_eq!(bench.store.load_lost(&new, 10).await.unwrap(), claimed);
    assert_eq!(bench.store.load_lost(&new, 10).await.unwrap(), claimed, "they are returned until they are settled");
    assert!(matches!(bench.store.renew(&old, TTL, &Beat::of(RunId::floor(START))).await, Err(StoreError::LeaseLost)));
}

pub async fn a_lost_claim_on_an_old_run_is_found(bench: &Bench) {
    let (first, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let id = bench.waiting(&first, &job, 10).await;
    bench.go(86_400);
    let second = bench.join("a", 2).await;
    let claimed = bench.claim(&second, id).await;
    assert_eq!(bench.store.load_claimed(&second).await.unwrap(), std::slice::from_ref(&claimed));
    assert_eq!(bench.load(&job).await.open.len(), 1);
    bench.go(90_000);
    let third = bench.join("a", 3).await;
    assert_eq!(bench.store.load_lost(&third, 10).await.unwrap(), [claimed]);
}

pub async fn a_node_that_left_loses_its_claims(bench: &Bench) {
    let (old, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&old, &job, 10).await;
    bench.store.leave(&old).await.unwrap();
    let new = bench.join("a", 2).await;
    assert_eq!(bench.store.load_lost(&new, 10).await.unwrap(), [claimed]);
}

pub async fn a_live_nodes_own_claims_are_not_lost(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    let raised = bench.store.raise_fence(&lease).await.unwrap();
    assert!(bench.store.load_lost(&raised, 10).await.unwrap().is_empty());
    assert!(matches!(bench.store.load_lost(&lease, 10).await, Err(StoreError::LeaseLost)));
}

pub async fn a_search_for_lost_claims_obeys_its_limit(bench: &Bench) {
    let (old, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    for n in 1..=3 {
        bench.claimed(&old, &job, n * 10).await;
    }
    let new = bench.join("a", 2).await;
    let some = bench.store.load_lost(&new, 2).await.unwrap();
    assert_eq!(some.len(), 2);
    for run in &some {
        bench.settle(run, Verdict::Failed).await;
    }
    assert_eq!(bench.store.load_lost(&new, 2).await.unwrap().len(), 1);
}

pub async fn a_settled_run_is_no_longer_lost(bench: &Bench) {
    let (old, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.claimed(&old, &job, 10).await;
    let new = bench.join("a", 2).await;
    let lost = bench.store.load_lost(&new, 10).await.unwrap();
    bench.settle(&lost[0], Verdict::Redeliver).await;
    for _ in 0..2 {
        assert!(bench.store.load_lost(&new, 10).await.unwrap().is_empty());
    }
    let again = bench.claim(&new, lost[0].id).await;
    assert_eq!((again.attempt, again.lost), (2, 1));
    assert!(bench.store.load_lost(&new, 10).await.unwrap().is_empty());
    assert_eq!(bench.load(&job).await.open.len(), 1);
}

pub async fn a_renewal_may_raise_the_bound_past_ended_runs(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let other = bench.create(spec("other")).await;
    bench.go(20);
    let over = bench.claimed(&lease, &job, 10).await;
    let open = bench.claimed(&lease, &job, 20).await;
    bench.settle(&over, Verdict::Succeeded).await;
    bench.pass_claims(&lease, open.id).await;
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap(), std::slice::from_ref(&open));
    assert_eq!(bench.load(&job).await.open.len(), 1);
    // A later claim may have a lower id.
    let id = bench.waiting(&lease, &other, 10).await;
    let lower = bench.claim(&lease, id).await;
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap(), [lower, open]);
    let unknown = JobId::from_uuid(uuid::Uuid::from_u128(99));
    assert!(bench.store.load_jobs(&[unknown]).await.unwrap().is_empty());
}
