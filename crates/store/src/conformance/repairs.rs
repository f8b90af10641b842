//! The reads of recovery, and the repair of missing ticks that the cursor has passed.

use everytick_domain::{
    edit::Change,
    plan::Fate,
    recovery::Window,
    run::{SkipReason, State},
    schedule::Timing,
    time::Span,
};

use super::{
    Bench, OTHER_TENANT, START, incarnation, new_run, overlapping, pause, raised, range, s, schedule, spec, tick, ticks,
};
use crate::{NodeInfo, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_repairs {
    ($open:path) => {
        $crate::conformance_group! { $open, repairs:
            overdue_jobs_come_in_cursor_order_without_a_lease,
            a_walk_returns_every_job_that_is_not_deleted,
            a_ledger_has_the_ticks_and_ranges_of_its_window,
            a_repair_records_a_missing_tick_that_the_cursor_has_passed,
            a_repair_does_not_change_recorded_ticks,
            a_repair_without_ticks_only_raises_the_epoch,
            a_repair_under_another_epoch_does_nothing,
            a_tick_that_the_cursor_has_not_passed_is_not_repaired,
            a_lost_lease_repairs_nothing,
        }
    };
}

pub async fn overdue_jobs_come_in_cursor_order_without_a_lease(bench: &Bench) {
    let (a, b) = (bench.create(spec("a")).await, bench.create(spec("b")).await);
    let theirs = bench.created(OTHER_TENANT, spec("theirs")).await.unwrap().job;
    let mut later = spec("later");
    later.schedule = Some(schedule(Timing::Every { every: Span::hours(1) }));
    bench.create(later).await;
    bench.create(spec("paused")).await;
    bench.edit("paused", pause()).await;
    bench.raise(&a, 1, Some(s(30))).await;
    bench.go(40);
    let mut first: Vec<_> = [b.id, theirs.id].into();
    first.sort_unstable();
    let found = bench.store.load_overdue(s(41), None, 2).await.unwrap();
    assert_eq!(found.iter().map(|loaded| loaded.job.id).collect::<Vec<_>>(), first);
    let place = found.last().and_then(|loaded| loaded.cursor.map(|cursor| (cursor, loaded.job.id)));
    let found = bench.store.load_overdue(s(41), place, 2).await.unwrap();
    assert_eq!(found.iter().map(|loaded| (loaded.job.id, loaded.cursor)).collect::<Vec<_>>(), [(a.id, Some(s(30)))]);
    assert_eq!(found[0].first_unrecorded(), Some(s(30)));
    let lease = bench.join("a", 1).await;
    bench.waiting(&lease, &a, 30).await;
    let found = bench.store.load_overdue(s(41), place, 2).await.unwrap();
    assert_eq!((found[0].first_unrecorded(), found[0].open.len()), (Some(s(40)), 1));
}

pub async fn a_walk_returns_every_job_that_is_not_deleted(bench: &Bench) {
    let mut made = vec![bench.create(spec("a")).await.id, bench.create(spec("b")).await.id];
    made.push(bench.created(OTHER_TENANT, spec("theirs")).await.unwrap().job.id);
    let mut off = spec("off");
    off.enabled = false;
    made.push(bench.create(off).await.id);
    bench.create(spec("gone")).await;
    bench.edit("gone", Change::Delete).await;
    made.sort_unstable();
    let (mut met, mut after) = (Vec::new(), None);
    loop {
        let page = bench.store.walk_jobs(after, 3).await.unwrap();
        met.extend(page.jobs.iter().map(|walked| walked.job.id));
        assert!(page.jobs.iter().all(|walked| walked.epoch.raw() == 1));
        after = page.last;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(met, made);
}

pub async fn a_ledger_has_the_ticks_and_ranges_of_its_window(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (job, other) = (bench.create(overlapping("j")).await, bench.create(overlapping("other")).await);
    bench.go(1_000);
    bench.range(&lease, &range(&job, 1, 10, 170)).await;
    let rows = [180, 190, 210, 230].map(|at| tick(&job, at, Fate::Skip(SkipReason::Overlap))).to_vec();
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, rows)).await;
    bench.record(&lease, ticks(&other, 1, vec![tick(&other, 200, Fate::Skip(SkipReason::Overlap))])).await;
    bench.clock.set(s(200));
    bench.trigger(new_run("j", "k")).await;
    let window = |from, to| Window { from: s(from), to: s(to) };
    let asked = [(job.id, window(160, 210)), (other.id, window(160, 210)), (job.id, window(180, 180))];
    let found = bench.store.load_ledgers(&asked).await.unwrap();
    assert_eq!((&found[0].ticks, &found[0].ranges), (&vec![s(180), s(190), s(210)], &vec![window(10, 170)]));
    assert_eq!((&found[1].ticks, found[1].ranges.len()), (&vec![s(200)], 0));
    assert_eq!((&found[2].ticks, found[2].ranges.len()), (&vec![s(180)], 0));
    assert!(bench.store.load_ledgers(&[]).await.unwrap().is_empty());
}

pub async fn a_repair_records_a_missing_tick_that_the_cursor_has_passed(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(60);
    bench.raise(&job, 1, Some(s(50))).await;
    bench.waiting(&lease, &job, 50).await;
    let lost = vec![tick(&job, 20, Fate::Skip(SkipReason::CatchUp)), tick(&job, 30, Fate::Late)];
    assert!(bench.store.repair(&lease, &ticks(&job, 1, lost)).await.unwrap());
    let history: Vec<_> =
        bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.state, run.skip_reason)).collect();
    let expected = [
        (s(20), State::Skipped, Some(SkipReason::CatchUp)),
        (s(30), State::Waiting, None),
        (s(50), State::Waiting, None),
    ];
    assert_eq!(history, expected);
    let due: Vec<_> = bench.peek(&lease).await.due.iter().map(|run| (run.due_at, run.late)).collect();
    assert_eq!(due, [(s(50), false), (s(30), true)]);
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.epoch.raw(), loaded.cursor, loaded.last_tick), (raised(s(60)), Some(s(50)), Some(s(50))));
    let audit = bench.audit().await.pop().unwrap();
    assert_eq!((audit.action.as_str(), audit.actor.as_str(), audit.subject), ("repair", "node:a", job.id.to_string()));
    assert!(audit.detail.contains(&s(20).to_string()) && audit.detail.contains(&s(30).to_string()), "{}", audit.detail);
}

pub async fn a_repair_does_not_change_recorded_ticks(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(60);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.raise(&job, 1, None).await;
    let lost = vec![tick(&job, 10, Fate::Late), tick(&job, 20, Fate::Late)];
    assert!(bench.store.repair(&lease, &ticks(&job, 1, lost)).await.unwrap());
    let run = bench.run(claimed.id).await;
    assert_eq!((run.state, run.fence), (State::Claimed, claimed.fence));
    assert_eq!(bench.due(&lease).await.len(), 1);
    assert_eq!(bench.cursor(&job).await, None, "the cursor of an ended schedule stays empty");
}

pub async fn a_repair_without_ticks_only_raises_the_epoch(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let mark = bench.store.changes(&bench.all(), Default::default(), 0).await.unwrap().mark;
    assert!(bench.store.repair(&lease, &ticks(&job, 1, Vec::new())).await.unwrap());
    assert_eq!((bench.epoch(&job).await, bench.cursor(&job).await), (raised(START), Some(s(10))));
    let changed = bench.store.changes(&bench.all(), mark, 10).await.unwrap().jobs;
    assert!(
        changed.iter().any(|changed| changed.id == job.id && changed.epoch.raw() == raised(START)),
        "the owner sees the change"
    );
}

pub async fn a_repair_under_another_epoch_does_nothing(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(60);
    bench.raise(&job, 1, Some(s(50))).await;
    for epoch in [0, 2] {
        let lost = ticks(&job, epoch, vec![tick(&job, 20, Fate::Late)]);
        assert!(!bench.store.repair(&lease, &lost).await.unwrap());
    }
    assert!(bench.history(&job).await.is_empty());
    assert_eq!(bench.epoch(&job).await, 1);
}

pub async fn a_tick_that_the_cursor_has_not_passed_is_not_repaired(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(60);
    bench.raise(&job, 1, Some(s(50))).await;
    let lost = ticks(&job, 1, vec![tick(&job, 40, Fate::Late), tick(&job, 50, Fate::Late)]);
    assert!(!bench.store.repair(&lease, &lost).await.unwrap());
    bench.raise(&job, 1, None).await;
    let ahead = ticks(&job, 1, vec![tick(&job, 70, Fate::Late)]);
    assert!(!bench.store.repair(&lease, &ahead).await.unwrap(), "the tick is not due");
    assert!(bench.history(&job).await.is_empty());
    assert_eq!(bench.epoch(&job).await, 1);
}

pub async fn a_lost_lease_repairs_nothing(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), super::TTL).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(60);
    bench.raise(&job, 1, Some(s(50))).await;
    let lost = ticks(&job, 1, vec![tick(&job, 20, Fate::Late)]);
    assert!(matches!(bench.store.repair(&lease, &lost).await, Err(StoreError::LeaseLost)));
    assert!(bench.history(&job).await.is_empty());
}
