//! Recording ticks: each once, not early, under the planned epoch, and only with a live lease.

use everytick_domain::{
    ids::{Fence, JobId},
    plan::Fate,
    run::{CauseKind, SkipReason, State},
    time::Span,
};

use super::{
    Bench, OTHER_TENANT, START, TENANT, TTL, actor, born, incarnation, job_id, overlapping, pause, s, spec, tick, ticks,
};
use crate::{Lease, NewJob, NodeInfo, RecordRow, RowAnswer, RunFilter, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_ticks {
    ($open:path) => {
        $crate::conformance_group! { $open, ticks:
            a_tick_is_recorded_once,
            a_tick_after_the_clock_is_early_and_is_not_written,
            a_tick_that_the_cursor_has_passed_is_stale,
            a_tick_planned_under_another_epoch_is_stale,
            a_tick_of_an_unknown_job_is_stale,
            a_tick_of_a_paused_job_is_stale,
            a_run_born_claimed_is_the_first_attempt_of_its_node,
            a_run_that_is_not_born_claimed_waits,
            a_run_that_catch_up_chose_waits_as_late,
            a_run_is_due_at_its_tick_plus_jitter,
            a_skip_is_terminal_and_has_its_reason,
            a_batch_answers_for_each_row_in_its_order,
            a_tick_named_twice_in_a_batch_is_recorded_once,
            a_lost_lease_records_nothing,
            an_empty_batch_is_recorded,
            a_thousand_jobs_are_recorded_in_one_batch,
            rows_of_several_ticks_of_one_job_are_recorded_in_order,
            batches_of_every_kind_need_the_lease_the_epoch_and_the_cursor,
            a_batch_with_several_ticks_of_a_job_records_each_under_its_own_plan,
            only_runs_of_a_batch_that_are_not_born_claimed_wait,
        }
    };
}

pub async fn a_tick_is_recorded_once(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let batch = || ticks(&job, 1, vec![tick(&job, 10, Fate::Run)]);
    assert_eq!(bench.record(&lease, batch()).await, [RowAnswer::Inserted]);
    assert_eq!(bench.record(&lease, batch()).await, [RowAnswer::Existed]);
    let history = bench.history(&job).await;
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].cause, history[0].scheduled_at, history[0].due_at), (CauseKind::Tick, s(10), s(10)));
    assert_eq!(bench.due(&lease).await.len(), 1);
}

pub async fn a_tick_after_the_clock_is_early_and_is_not_written(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.clock.set(s(10).minus(Span::millis(1)));
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![born(&job, 10)])).await, [RowAnswer::Early]);
    assert!(bench.history(&job).await.is_empty());
    bench.go(10);
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![born(&job, 10)])).await, [RowAnswer::Inserted]);
}

pub async fn a_tick_that_the_cursor_has_passed_is_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(30);
    bench.raise(&job, 1, Some(s(20))).await;
    let rows = vec![tick(&job, 10, Fate::Run), tick(&job, 20, Fate::Run)];
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Stale, RowAnswer::Inserted]);
}

pub async fn a_tick_planned_under_another_epoch_is_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    for epoch in [0, 2] {
        let rows = vec![tick(&job, 10, Fate::Run)];
        assert_eq!(bench.record(&lease, ticks(&job, epoch, rows)).await, [RowAnswer::Stale]);
    }
    assert!(bench.history(&job).await.is_empty());
}

pub async fn a_tick_of_an_unknown_job_is_stale(bench: &Bench) {
    let (lease, mut job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    job.id = JobId::from_uuid(uuid::Uuid::from_u128(99));
    bench.go(10);
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![tick(&job, 10, Fate::Run)])).await, [RowAnswer::Stale]);
}

pub async fn a_tick_of_a_paused_job_is_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.edit("j", pause()).await;
    bench.go(10);
    for epoch in [1, bench.epoch(&job).await] {
        let rows = vec![tick(&job, 10, Fate::Run)];
        assert_eq!(bench.record(&lease, ticks(&job, epoch, rows)).await, [RowAnswer::Stale]);
    }
}

pub async fn a_run_born_claimed_is_the_first_attempt_of_its_node(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(11);
    let row = born(&job, 10);
    let recorded = bench.store.record(&lease, &[ticks(&job, 1, vec![row.clone()])]).await.unwrap();
    assert_eq!(recorded.now, s(11));
    let run = bench.run(row.tick.id).await;
    assert_eq!((run.state, run.attempt, run.lost), (State::Claimed, 1, 0));
    assert_eq!(run.fence, Fence::default().raised(s(11)));
    assert_eq!((run.node.as_deref(), run.started_at, run.finished_at), (Some("a"), Some(s(11)), None));
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap()[0].id, run.id);
    assert!(bench.due(&lease).await.is_empty());
}

pub async fn a_run_that_is_not_born_claimed_waits(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    let run = bench.run(id).await;
    assert_eq!((run.state, run.attempt, run.node, run.started_at), (State::Waiting, 0, None, None));
    let due = bench.peek(&lease).await.due;
    assert_eq!((due[0].id, due[0].job, due[0].tenant, due[0].priority), (id, job.id, TENANT, 5));
    assert_eq!((due[0].due_at, due[0].late, due[0].force, due[0].attempts), (s(10), false, false, 0));
}

pub async fn a_run_that_catch_up_chose_waits_as_late(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(300);
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![tick(&job, 10, Fate::Late)])).await, [RowAnswer::Inserted]);
    assert!(bench.peek(&lease).await.due[0].late);
}

pub async fn a_run_is_due_at_its_tick_plus_jitter(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let mut row = tick(&job, 10, Fate::Run);
    row.tick.due_at = s(13);
    let id = row.tick.id;
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![row])).await, [RowAnswer::Inserted]);
    let run = bench.run(id).await;
    assert_eq!((run.scheduled_at, run.due_at), (s(10), s(13)));
    let peeked = bench.peek(&lease).await;
    assert!(peeked.due.is_empty());
    assert_eq!(peeked.next_due, Some(s(13)));
}

pub async fn a_skip_is_terminal_and_has_its_reason(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(21);
    let overlap = tick(&job, 10, Fate::Skip(SkipReason::Overlap));
    let misfire = RecordRow { born_claimed: true, ..tick(&job, 20, Fate::Skip(SkipReason::Misfire)) };
    bench.record(&lease, ticks(&job, 1, vec![overlap, misfire])).await;
    let history = bench.history(&job).await;
    let reasons: Vec<_> = history.iter().map(|run| run.skip_reason).collect();
    assert_eq!(reasons, [Some(SkipReason::Overlap), Some(SkipReason::Misfire)]);
    for run in history {
        assert_eq!((run.state, run.attempt, run.finished_at), (State::Skipped, 0, Some(s(21))));
    }
    assert!(bench.due(&lease).await.is_empty());
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
}

pub async fn a_batch_answers_for_each_row_in_its_order(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (a, b, c) = (bench.create(spec("a")).await, bench.create(spec("b")).await, bench.create(spec("c")).await);
    bench.go(25);
    bench.waiting(&lease, &a, 10).await;
    let batch = [
        ticks(&a, 1, vec![tick(&a, 10, Fate::Run), tick(&a, 20, Fate::Run), tick(&a, 30, Fate::Run)]),
        ticks(&b, 7, vec![tick(&b, 10, Fate::Run)]),
        ticks(&c, 1, vec![]),
        ticks(&c, 1, vec![born(&c, 10), tick(&c, 20, Fate::Skip(SkipReason::Overlap))]),
    ];
    let recorded = bench.store.record(&lease, &batch).await.unwrap();
    use RowAnswer::{Early, Existed, Inserted, Stale};
    assert_eq!(recorded.jobs, [vec![Existed, Inserted, Early], vec![Stale], vec![], vec![Inserted, Inserted]]);
    assert_eq!(bench.history(&a).await.len(), 2);
    assert!(bench.history(&b).await.is_empty());
    let states: Vec<_> = bench.history(&c).await.iter().map(|run| run.state).collect();
    assert_eq!(states, [State::Claimed, State::Skipped]);
    assert_eq!(bench.due(&lease).await.len(), 2, "both runs of the first job wait");
}

pub async fn a_tick_named_twice_in_a_batch_is_recorded_once(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let rows = vec![tick(&job, 10, Fate::Run), tick(&job, 10, Fate::Run)];
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Inserted, RowAnswer::Existed]);
    assert_eq!(bench.due(&lease).await.len(), 1);
}

pub async fn a_lost_lease_records_nothing(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(15);
    let recorded = bench.store.record(&lease, &[ticks(&job, 1, vec![tick(&job, 10, Fate::Run)])]).await;
    assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
    assert!(bench.history(&job).await.is_empty());
}

/// A store may have a statement for each kind: born claimed, waiting, several ticks of a job.
pub async fn batches_of_every_kind_need_the_lease_the_epoch_and_the_cursor(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    // A paused job, whose epoch is wrong for `job`.
    let other = bench.create(spec("other")).await;
    bench.edit("other", pause()).await;
    let epochs = [2, bench.epoch(&other).await];
    let (born, waits) = (|at| born(&job, at), |at| tick(&job, at, Fate::Run));
    let kinds = |at| [vec![born(at)], vec![waits(at)], vec![born(at), waits(at + 10)]];
    let all = |rows: &[RecordRow], answer: RowAnswer| vec![answer; rows.len()];
    bench.go(30);
    for rows in kinds(10) {
        let others = [
            Lease { incarnation: incarnation(9), ..lease.clone() },
            Lease { node: "b".into(), ..lease.clone() },
            Lease { fence: Fence::from_raw(1), ..lease.clone() },
        ];
        for other in others {
            let recorded = bench.store.record(&other, &[ticks(&job, 1, rows.clone())]).await;
            assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
        }
        for epoch in epochs {
            assert_eq!(bench.record(&lease, ticks(&job, epoch, rows.clone())).await, all(&rows, RowAnswer::Stale));
        }
    }
    for rows in kinds(40) {
        assert_eq!(bench.record(&lease, ticks(&job, 1, rows.clone())).await, all(&rows, RowAnswer::Early));
    }
    bench.raise(&job, 1, Some(s(30))).await;
    for rows in kinds(10) {
        assert_eq!(bench.record(&lease, ticks(&job, 1, rows.clone())).await, all(&rows, RowAnswer::Stale));
    }
    let (expired, _) = bench.store.join(&NodeInfo::named("c"), incarnation(3), TTL).await.unwrap();
    bench.go(60);
    for rows in kinds(40) {
        let recorded = bench.store.record(&expired, &[ticks(&job, 1, rows)]).await;
        assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
    }
    assert!(bench.history(&job).await.is_empty());
}

pub async fn a_batch_with_several_ticks_of_a_job_records_each_under_its_own_plan(bench: &Bench) {
    let other = bench.created(OTHER_TENANT, spec("other")).await.unwrap().job;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let rows = |at| vec![tick(&job, at, Fate::Run)];
    let batch = [ticks(&job, 1, rows(10)), ticks(&job, 1, rows(20)), ticks(&job, 2, rows(30))];
    let recorded = bench.store.record(&lease, &batch).await.unwrap().jobs;
    assert_eq!(recorded, [[RowAnswer::Inserted], [RowAnswer::Inserted], [RowAnswer::Stale]]);
    let runs: Vec<_> = bench.history(&job).await.iter().map(|run| (run.tenant, run.job)).collect();
    assert_eq!(runs, [(TENANT, job.id); 2], "not of {}", other.tenant.raw());
    // Recorded runs that were claimed do not wait again.
    let due = bench.due(&lease).await;
    bench.claim(&lease, due[0]).await;
    bench.claim(&lease, due[1]).await;
    let recorded = bench.store.record(&lease, &batch[..2]).await.unwrap().jobs;
    assert_eq!(recorded, [[RowAnswer::Existed], [RowAnswer::Existed]]);
    assert!(bench.due(&lease).await.is_empty());
}

pub async fn only_runs_of_a_batch_that_are_not_born_claimed_wait(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (claimed, waits) = (bench.create(spec("claimed")).await, bench.create(spec("waits")).await);
    bench.go(10);
    let row = tick(&waits, 10, Fate::Run);
    let batch = [ticks(&claimed, 1, vec![born(&claimed, 10)]), ticks(&waits, 1, vec![row.clone()])];
    let recorded = bench.store.record(&lease, &batch).await.unwrap().jobs;
    assert_eq!(recorded, [[RowAnswer::Inserted], [RowAnswer::Inserted]]);
    assert_eq!(bench.due(&lease).await, [row.tick.id]);
}

pub async fn an_empty_batch_is_recorded(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    assert!(bench.store.record(&lease, &[]).await.unwrap().jobs.is_empty());
}

/// The quota of one tenant is too small: fifty tenants with twenty jobs each.
pub async fn a_thousand_jobs_are_recorded_in_one_batch(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut jobs = Vec::new();
    for tenant in (1..=50).map(everytick_domain::ids::TenantId::from_raw) {
        let specs = (0..20).map(|n| NewJob { id: job_id(tenant, &format!("j{n}")), spec: spec(&format!("j{n}")) });
        let created = bench.store.create_jobs(tenant, &actor(), specs.collect(), None).await.unwrap();
        jobs.extend(created.into_iter().map(|created| created.unwrap().job));
    }
    bench.go(10);
    let batch: Vec<_> = jobs.iter().map(|job| ticks(job, 1, vec![born(job, 10)])).collect();
    let recorded = bench.store.record(&lease, &batch).await.unwrap();
    assert_eq!(recorded.jobs.concat(), vec![RowAnswer::Inserted; 1_000]);
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap().len(), 1_000);
    let page = bench.store.list_runs(TENANT, &RunFilter::default(), None, 100).await.unwrap();
    assert_eq!(page.items.len(), 20, "each run belongs to its own tenant");
    assert!(page.items.iter().all(|run| run.tenant == TENANT && run.started_at == Some(START.plus(Span::seconds(10)))));
}

pub async fn rows_of_several_ticks_of_one_job_are_recorded_in_order(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(super::overlapping("j")).await);
    bench.go(60);
    let rows: Vec<_> = (1..=6).map(|n| tick(&job, n * 10, Fate::Run)).collect();
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, vec![RowAnswer::Inserted; 6]);
    let at: Vec<_> = bench.history(&job).await.iter().map(|run| run.scheduled_at).collect();
    assert_eq!(at, (1..=6).map(|n| s(n * 10)).collect::<Vec<_>>());
}
