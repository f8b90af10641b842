//! Backfills: one run for each past tick of a period, created in steps.

use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BACKFILLS_RUNNING_MAX, BackfillState, Order, Stretch},
    edit::Change,
    explain::{Backfilled, Question},
    ids::{BackfillId, RunId},
    job::{Job, JobSpec, Overlap},
    partition::PartitionSet,
    run::{CauseKind, State, Verdict},
    schedule::Timing,
    time::Span,
};
use uuid::Uuid;

use super::{Bench, OTHER_TENANT, TENANT, actor, by_name, incarnation, new_run, overlapping, pause, s, schedule, spec};
use crate::{
    BackfillAdvanced, BackfillRecord, EndedRuns, IdempotencyKey, Lease, NewBackfill, NodeInfo, Result, StoreError,
};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_backfills {
    ($open:path) => {
        $crate::conformance_group! { $open, backfills:
            a_new_backfill_has_no_runs_and_returns_its_ticks,
            backfilled_runs_wait_as_late_and_do_not_change_ticks_or_cursor,
            a_backfill_is_done_after_all_its_runs_ended_and_counts_their_states,
            a_job_that_may_not_overlap_gets_one_backfilled_run_at_a_time,
            a_backfill_obeys_its_rate_and_the_limit_of_open_runs,
            a_backfill_creates_runs_in_the_requested_order,
            an_edit_does_not_change_the_ticks_of_a_backfill,
            a_cancelled_backfill_creates_no_more_runs,
            a_cancel_does_not_end_another_backfill,
            a_cancel_does_not_change_a_backfill_that_is_done,
            a_pause_does_not_stop_a_backfill_but_a_delete_does,
            a_repeated_request_returns_the_same_backfill,
            running_backfills_per_job_are_limited,
            an_impossible_backfill_is_refused_with_its_field,
            runs_for_old_ticks_have_recent_ids,
            a_backfill_that_takes_too_long_is_ended_with_a_note,
            a_lost_lease_creates_no_backfilled_runs,
            backfills_are_loaded_by_the_partition_of_their_job,
            backfills_are_listed_newest_first_in_pages_and_stay_with_their_tenant,
            backfills_have_audit_rows,
            an_ended_backfill_is_pruned,
            a_cancelled_backfill_is_kept_until_its_open_runs_are_counted,
            an_explanation_lists_the_backfilled_runs_of_the_instant,
        }
    };
}

const KEPT: Span = Span::days(90);

/// A backfill of the job `j` from second `from` to before the second after `to`, oldest first.
fn ask(n: u128, from: i64, to: i64) -> NewBackfill {
    NewBackfill {
        id: BackfillId::from_uuid(Uuid::from_u128(n)),
        job: by_name("j"),
        stretch: Stretch { from: s(from), to: s(to + 1), order: Order::Oldest },
        rate: None,
        payload: None,
        kept: KEPT,
        idempotency: None,
    }
}

async fn try_make(bench: &Bench, ask: NewBackfill) -> Result<BackfillRecord> {
    bench.store.create_backfill(TENANT, &actor(), ask).await
}

async fn make(bench: &Bench, ask: NewBackfill) -> BackfillRecord {
    try_make(bench, ask).await.unwrap()
}

async fn advance(bench: &Bench, lease: &Lease, backfill: &BackfillRecord) -> BackfillAdvanced {
    bench.store.advance_backfill(lease, backfill.id, KEPT).await.unwrap()
}

async fn read(bench: &Bench, backfill: &BackfillRecord) -> BackfillRecord {
    bench.store.get_backfill(TENANT, backfill.id).await.unwrap()
}

fn run_of(backfill: &BackfillRecord, seconds: i64) -> RunId {
    backfill.run_of(s(seconds))
}

/// The seconds of the ticks that have backfilled runs, oldest first.
async fn made(bench: &Bench, job: &Job) -> Vec<i64> {
    let history = bench.history(job).await;
    let runs = history.iter().filter(|run| run.cause == CauseKind::Backfill);
    let mut made: Vec<_> = runs.map(|run| (run.scheduled_at.millis() - s(0).millis()) / 1_000).collect();
    made.sort_unstable();
    made
}

/// Claims and settles one run.
async fn work(bench: &Bench, lease: &Lease, run: RunId, verdict: Verdict) {
    let claimed = bench.claim(lease, run).await;
    assert_eq!(claimed.cause, CauseKind::Backfill);
    bench.settle(&claimed, verdict).await;
}

pub async fn a_new_backfill_has_no_runs_and_returns_its_ticks(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    bench.go(100);
    let rate = "10/1m".parse().ok();
    let payload = Some("[1]".to_owned());
    let asked = NewBackfill { rate, payload: payload.clone(), ..ask(1, -20, 20) };
    let preview = bench.store.preview_backfill(TENANT, &asked).await.unwrap();
    assert_eq!((preview.job, preview.job_name.as_str(), preview.total), (job.id, "j", 5));
    assert_eq!((preview.first, preview.last), ([-20, -10, 0, 10, 20].map(s).to_vec(), vec![]));
    assert!(bench.store.list_backfills(TENANT, job.id, None, 10).await.unwrap().items.is_empty());

    let made_now = make(bench, asked.clone()).await;
    assert_eq!((made_now.id, made_now.job, made_now.job_name.as_str()), (asked.id, job.id, "j"));
    assert_eq!((made_now.stretch, made_now.rate, &made_now.payload), (asked.stretch, rate, &payload));
    assert_eq!((made_now.state, made_now.total, made_now.made), (BackfillState::Running, 5, 0));
    assert_eq!((made_now.created_at, made_now.created_by.as_str(), made_now.finished_at), (s(100), "tester", None));
    assert_eq!(read(bench, &made_now).await, made_now);
    assert!(bench.history(&job).await.is_empty());
}

pub async fn backfilled_runs_wait_as_late_and_do_not_change_ticks_or_cursor(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let (cursor, epoch) = (bench.cursor(&job).await, bench.epoch(&job).await);
    let backfill = make(bench, NewBackfill { payload: Some("[1]".into()), ..ask(1, -20, 20) }).await;
    assert_eq!(advance(bench, &lease, &backfill).await, BackfillAdvanced { state: BackfillState::Running, made: 5 });
    assert_eq!(made(bench, &job).await, [-20, -10, 0, 10, 20]);
    let run = bench.run(run_of(&backfill, -20)).await;
    assert_eq!((run.cause, run.state, run.attempt), (CauseKind::Backfill, State::Waiting, 0));
    assert_eq!((run.scheduled_at, run.due_at, run.payload.as_deref()), (s(-20), s(100), Some("[1]")));
    let due = bench.peek(&lease).await.due;
    assert!(due.len() == 5 && due.iter().all(|run| run.late && !run.force), "{due:?}");
    assert_eq!((bench.cursor(&job).await, bench.epoch(&job).await), (cursor, epoch));
    // The ticks themselves are still unrecorded.
    assert_eq!(bench.load(&job).await.first_unrecorded(), Some(s(10)));
    assert_eq!(bench.claim(&lease, run.id).await.payload.as_deref(), Some("[1]"));
    assert_eq!(advance(bench, &lease, &backfill).await.made, 0);
    assert_eq!(made(bench, &job).await.len(), 5, "each tick gets one run");
}

pub async fn a_backfill_is_done_after_all_its_runs_ended_and_counts_their_states(bench: &Bench) {
    bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 30)).await;
    advance(bench, &lease, &backfill).await;
    work(bench, &lease, run_of(&backfill, 0), Verdict::Succeeded).await;
    work(bench, &lease, run_of(&backfill, 10), Verdict::Failed).await;
    let counted = EndedRuns { succeeded: 1, failed: 1, cancelled: 0 };
    assert_eq!(read(bench, &backfill).await.ended, counted, "ended runs are counted at once");
    assert_eq!(advance(bench, &lease, &backfill).await.state, BackfillState::Running);
    assert_eq!(read(bench, &backfill).await.ended, counted, "no run is counted twice");
    bench.store.cancel_run(TENANT, &actor(), run_of(&backfill, 20)).await.unwrap();
    work(bench, &lease, run_of(&backfill, 30), Verdict::Succeeded).await;
    bench.go(200);
    assert_eq!(advance(bench, &lease, &backfill).await, BackfillAdvanced { state: BackfillState::Done, made: 0 });
    let done = read(bench, &backfill).await;
    assert_eq!(done.ended, EndedRuns { succeeded: 2, failed: 1, cancelled: 1 });
    assert_eq!((done.made, done.total, done.finished_at), (4, 4, Some(s(200))));
    assert!(bench.store.load_backfills(&bench.all(), None, 10).await.unwrap().is_empty());
}

pub async fn a_job_that_may_not_overlap_gets_one_backfilled_run_at_a_time(bench: &Bench) {
    let policies = [Overlap::Skip, Overlap::Queue { limit: 3 }, Overlap::CancelPrevious];
    let lease = bench.join("a", 1).await;
    for (n, overlap) in (1..).zip(policies) {
        let name = format!("j{n}");
        let job = bench.create(JobSpec { overlap, ..spec(&name) }).await;
        bench.go(100);
        let on_time = bench.trigger(new_run(&name, "k")).await;
        let backfill = make(bench, NewBackfill { job: by_name(&name), ..ask(n, 0, 20) }).await;
        assert_eq!(advance(bench, &lease, &backfill).await.made, 0, "{overlap:?}: another run is open");
        bench.store.cancel_run(TENANT, &actor(), on_time.id).await.unwrap();
        let before = bench.epoch(&job).await;
        assert_eq!(advance(bench, &lease, &backfill).await.made, 1);
        assert_eq!(bench.epoch(&job).await > before, matches!(overlap, Overlap::Queue { .. }), "{overlap:?}");
        assert_eq!(advance(bench, &lease, &backfill).await.made, 0, "{overlap:?}: the first backfilled run is open");
        work(bench, &lease, run_of(&backfill, 0), Verdict::Failed).await;
        assert_eq!(advance(bench, &lease, &backfill).await.made, 1);
        assert_eq!(made(bench, &job).await, [0, 10]);
    }
}

pub async fn a_backfill_obeys_its_rate_and_the_limit_of_open_runs(bench: &Bench) {
    bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(10_000);
    let backfill = make(bench, NewBackfill { rate: "3/1m".parse().ok(), ..ask(1, 0, 100) }).await;
    assert_eq!(advance(bench, &lease, &backfill).await.made, 3);
    bench.go(10_019);
    assert_eq!(advance(bench, &lease, &backfill).await.made, 0);
    bench.go(10_040);
    assert_eq!(advance(bench, &lease, &backfill).await.made, 2);
    let many = make(bench, ask(2, 0, 5_000)).await;
    assert_eq!(advance(bench, &lease, &many).await.made, BACKFILL_OPEN_MAX);
    assert_eq!(advance(bench, &lease, &many).await.made, 0);
    let two = bench.due(&lease).await;
    for run in &two[..2] {
        work(bench, &lease, *run, Verdict::Succeeded).await;
    }
    let freed = advance(bench, &lease, &many).await.made + advance(bench, &lease, &backfill).await.made;
    assert!(freed <= 2, "{freed}");
}

pub async fn a_backfill_creates_runs_in_the_requested_order(bench: &Bench) {
    bench.create(spec("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let mut asked = ask(1, 0, 20);
    asked.stretch.order = Order::Newest;
    let backfill = make(bench, asked).await;
    for tick in [20, 10, 0] {
        assert_eq!(advance(bench, &lease, &backfill).await.made, 1);
        work(bench, &lease, run_of(&backfill, tick), Verdict::Succeeded).await;
    }
    assert_eq!(advance(bench, &lease, &backfill).await.state, BackfillState::Done);
}

pub async fn an_edit_does_not_change_the_ticks_of_a_backfill(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 20)).await;
    let other = JobSpec { schedule: Some(schedule(Timing::Every { every: Span::seconds(7) })), ..overlapping("j") };
    bench.edit("j", Change::Replace(Box::new(other))).await;
    assert_eq!(advance(bench, &lease, &backfill).await.made, 3);
    assert_eq!(made(bench, &job).await, [0, 10, 20]);
}

pub async fn a_cancelled_backfill_creates_no_more_runs(bench: &Bench) {
    bench.create(spec("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 20)).await;
    advance(bench, &lease, &backfill).await;
    let open = run_of(&backfill, 0);
    let cancelled = bench.store.cancel_backfill(TENANT, &actor(), backfill.id).await.unwrap();
    assert_eq!((cancelled.backfill.state, cancelled.backfill.finished_at), (BackfillState::Cancelled, Some(s(100))));
    assert_eq!(cancelled.open, [open], "created runs continue");
    assert_eq!(cancelled.backfill.note.as_deref(), Some("cancelled by tester"));
    let trail = bench.audit().await.len();
    bench.go(200);
    let again = bench.store.cancel_backfill(TENANT, &actor(), backfill.id).await.unwrap();
    assert_eq!(
        (again.backfill, bench.audit().await.len()),
        (cancelled.backfill, trail),
        "a second cancel changes nothing"
    );
    assert_eq!(
        bench.store.load_backfills(&bench.all(), None, 10).await.unwrap(),
        [backfill.id],
        "its open run still has to be counted"
    );
    work(bench, &lease, open, Verdict::Succeeded).await;
    assert_eq!(advance(bench, &lease, &backfill).await, BackfillAdvanced { state: BackfillState::Cancelled, made: 0 });
    assert!(bench.store.load_backfills(&bench.all(), None, 10).await.unwrap().is_empty());
    let read = read(bench, &backfill).await;
    assert_eq!((read.made, read.ended.succeeded, read.finished_at), (1, 1, Some(s(100))));
}

pub async fn a_cancel_does_not_end_another_backfill(bench: &Bench) {
    bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let (first, second) = (make(bench, ask(1, 0, 20)).await, make(bench, ask(2, 30, 40)).await);
    bench.store.cancel_backfill(TENANT, &actor(), first.id).await.unwrap();
    assert_eq!(read(bench, &second).await, second);
    assert_eq!(advance(bench, &lease, &second).await, BackfillAdvanced { state: BackfillState::Running, made: 2 });
}

pub async fn a_cancel_does_not_change_a_backfill_that_is_done(bench: &Bench) {
    bench.create(spec("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 0)).await;
    advance(bench, &lease, &backfill).await;
    work(bench, &lease, run_of(&backfill, 0), Verdict::Succeeded).await;
    advance(bench, &lease, &backfill).await;
    let cancelled = bench.store.cancel_backfill(TENANT, &actor(), backfill.id).await.unwrap();
    assert_eq!((cancelled.backfill.state, cancelled.open), (BackfillState::Done, vec![]));
    assert_eq!(advance(bench, &lease, &backfill).await, BackfillAdvanced { state: BackfillState::Done, made: 0 });
}

pub async fn a_pause_does_not_stop_a_backfill_but_a_delete_does(bench: &Bench) {
    bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, NewBackfill { rate: "1/1m".parse().ok(), ..ask(1, 0, 20) }).await;
    bench.edit("j", pause()).await;
    assert_eq!(advance(bench, &lease, &backfill).await.made, 1);
    bench.edit("j", Change::Delete).await;
    bench.go(1_000);
    assert_eq!(advance(bench, &lease, &backfill).await, BackfillAdvanced { state: BackfillState::Cancelled, made: 0 });
    assert_eq!(read(bench, &backfill).await.finished_at, Some(s(1_000)));
}

pub async fn a_repeated_request_returns_the_same_backfill(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(100);
    let key = |print| Some(IdempotencyKey { key: "k".into(), fingerprint: [print; 32] });
    let first = make(bench, NewBackfill { idempotency: key(1), ..ask(1, 0, 20) }).await;
    let again = make(bench, NewBackfill { idempotency: key(1), ..ask(2, 0, 20) }).await;
    assert_eq!(again, first);
    assert_eq!(bench.store.list_backfills(TENANT, job.id, None, 10).await.unwrap().items, [first]);
    let other = try_make(bench, NewBackfill { idempotency: key(2), ..ask(3, 0, 20) }).await;
    assert!(matches!(other, Err(StoreError::KeyReused)), "{other:?}");
}

pub async fn running_backfills_per_job_are_limited(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.go(100);
    let max = u128::try_from(BACKFILLS_RUNNING_MAX).unwrap();
    for n in 1..=max {
        make(bench, ask(n, 0, 20)).await;
    }
    let refused = try_make(bench, ask(max + 1, 0, 20)).await;
    assert!(matches!(&refused, Err(StoreError::Invalid(found)) if found[0].field == "job"), "{refused:?}");
    bench.store.cancel_backfill(TENANT, &actor(), ask(1, 0, 0).id).await.unwrap();
    make(bench, ask(max + 1, 0, 20)).await;
}

pub async fn an_impossible_backfill_is_refused_with_its_field(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.create(JobSpec { schedule: None, ..spec("idle") }).await;
    bench.go(100);
    let day = 86_400;
    for (asked, field) in [
        (ask(1, 0, 160), "to"),
        (ask(1, -91 * day, 0), "from"),
        (ask(1, -80 * day, 0), "from"),
        (NewBackfill { job: by_name("idle"), ..ask(1, 0, 10) }, "job"),
        (NewBackfill { rate: "1/1d".parse().ok(), ..ask(1, 0, 100) }, "rate"),
    ] {
        for refused in
            [try_make(bench, asked.clone()).await.err(), bench.store.preview_backfill(TENANT, &asked).await.err()]
        {
            assert!(matches!(&refused, Some(StoreError::Invalid(found)) if found[0].field == field), "{refused:?}");
        }
    }
}

pub async fn runs_for_old_ticks_have_recent_ids(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    let long_ago = -80 * 86_400;
    let backfill = make(bench, ask(1, long_ago, long_ago + 20)).await;
    assert_eq!(advance(bench, &lease, &backfill).await.made, 3);
    assert_eq!(made(bench, &job).await, [0, 10, 20].map(|second| long_ago + second));
    let in_order: Vec<_> = bench.history(&job).await.iter().map(|run| run.scheduled_at).collect();
    assert_eq!(in_order, [0, 10, 20].map(|second| s(long_ago + second)), "listed in the order of their ticks");
    // A claimed run of a vanished node is lost, as any other.
    let run = run_of(&backfill, long_ago);
    assert!(run.time() > s(-2 * 3_600), "a search for claims need not read months back");
    bench.claim(&lease, run).await;
    assert!(bench.load(&job).await.open.iter().any(|open| open.id == run && open.state == State::Claimed));
    bench.store.leave(&lease).await.unwrap();
    let other = bench.join("b", 2).await;
    let lost = bench.store.load_lost(&other, 10).await.unwrap();
    assert_eq!(lost.iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
}

pub async fn a_backfill_that_takes_too_long_is_ended_with_a_note(bench: &Bench) {
    bench.create(spec("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 40)).await;
    assert_eq!(advance(bench, &lease, &backfill).await.made, 1);
    work(bench, &lease, run_of(&backfill, 0), Verdict::Succeeded).await;
    bench.go(7 * 86_400);
    assert_eq!(advance(bench, &lease, &backfill).await, BackfillAdvanced { state: BackfillState::Cancelled, made: 0 });
    let read = read(bench, &backfill).await;
    assert_eq!((read.total, read.made, read.finished_at), (5, 1, Some(s(7 * 86_400))));
    assert!(read.note.as_deref().unwrap().contains("4 ticks left"), "{:?}", read.note);
}

pub async fn a_lost_lease_creates_no_backfilled_runs(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    let lease = bench.store.join(&NodeInfo::named("a"), incarnation(1), Span::seconds(15)).await.unwrap().0;
    bench.go(10);
    let backfill = make(bench, ask(1, 0, 10)).await;
    let raised = bench.store.raise_fence(&lease).await.unwrap();
    let fenced = bench.store.advance_backfill(&lease, backfill.id, KEPT).await;
    assert!(matches!(fenced, Err(StoreError::LeaseLost)), "{fenced:?}");
    bench.go(100);
    let expired = bench.store.advance_backfill(&raised, backfill.id, KEPT).await;
    assert!(matches!(expired, Err(StoreError::LeaseLost)), "{expired:?}");
    assert!(made(bench, &job).await.is_empty());
}

pub async fn backfills_are_loaded_by_the_partition_of_their_job(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.go(100);
    let ids = [make(bench, ask(1, 0, 20)).await.id, make(bench, ask(2, 0, 20)).await.id];
    let load = async |partitions, after, limit| bench.store.load_backfills(&partitions, after, limit).await.unwrap();
    assert_eq!(load(bench.all(), None, 10).await, ids);
    assert_eq!(load(bench.all(), None, 1).await, ids[..1]);
    assert_eq!(load(bench.all(), Some(ids[0]), 10).await, ids[1..]);
    assert!(load(PartitionSet::none(), None, 10).await.is_empty());
}

pub async fn backfills_are_listed_newest_first_in_pages_and_stay_with_their_tenant(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(100);
    let mut made = Vec::new();
    for n in 1..=3 {
        made.insert(0, make(bench, ask(n, 0, 20)).await);
    }
    let first = bench.store.list_backfills(TENANT, job.id, None, 2).await.unwrap();
    assert_eq!((first.items, first.next), (made[..2].to_vec(), Some(made[1].id)));
    let rest = bench.store.list_backfills(TENANT, job.id, first.next, 2).await.unwrap();
    assert_eq!((rest.items, rest.next), (made[2..].to_vec(), None));
    assert!(bench.store.list_backfills(OTHER_TENANT, job.id, None, 9).await.unwrap().items.is_empty());
    let foreign = [
        bench.store.get_backfill(OTHER_TENANT, made[0].id).await.err(),
        bench.store.cancel_backfill(OTHER_TENANT, &actor(), made[0].id).await.err(),
        bench.store.create_backfill(OTHER_TENANT, &actor(), ask(9, 0, 20)).await.err(),
    ];
    assert!(foreign.iter().all(|error| matches!(error, Some(StoreError::NotFound(_)))), "{foreign:?}");
}

pub async fn backfills_have_audit_rows(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 20)).await;
    bench.store.cancel_backfill(TENANT, &actor(), backfill.id).await.unwrap();
    let trail = bench.audit().await;
    let rows: Vec<_> = trail[trail.len() - 2..].iter().map(|row| (row.action.as_str(), row.subject.clone())).collect();
    let id = backfill.id.to_string();
    assert_eq!(rows, [("backfill", id.clone()), ("cancel_backfill", id)]);
    assert!(trail[trail.len() - 2].detail.contains("\"total\":3"), "{:?}", trail[trail.len() - 2]);
}

pub async fn an_ended_backfill_is_pruned(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(100);
    let over = make(bench, ask(1, 0, 20)).await;
    make(bench, ask(2, 0, 20)).await;
    bench.store.cancel_backfill(TENANT, &actor(), over.id).await.unwrap();
    let lease = bench.join("a", 1).await;
    advance(bench, &lease, &over).await;
    bench.store.prune(s(100), 100).await.unwrap();
    let left = async || bench.store.list_backfills(TENANT, job.id, None, 9).await.unwrap().items.len();
    assert_eq!(left().await, 2);
    bench.store.prune(s(101), 100).await.unwrap();
    assert_eq!(left().await, 1, "a running backfill is kept");
}

pub async fn a_cancelled_backfill_is_kept_until_its_open_runs_are_counted(bench: &Bench) {
    bench.create(spec("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfill = make(bench, ask(1, 0, 20)).await;
    advance(bench, &lease, &backfill).await;
    bench.store.cancel_backfill(TENANT, &actor(), backfill.id).await.unwrap();
    bench.store.prune(s(101), 100).await.unwrap();
    assert_eq!(read(bench, &backfill).await.state, BackfillState::Cancelled);
    work(bench, &lease, run_of(&backfill, 0), Verdict::Succeeded).await;
    advance(bench, &lease, &backfill).await;
    assert_eq!(read(bench, &backfill).await.ended.succeeded, 1);
}

pub async fn an_explanation_lists_the_backfilled_runs_of_the_instant(bench: &Bench) {
    bench.create(overlapping("j")).await;
    let lease = bench.join("a", 1).await;
    bench.go(100);
    let backfills = [make(bench, ask(1, 0, 20)).await, make(bench, ask(2, 10, 10)).await];
    for backfill in &backfills {
        advance(bench, &lease, backfill).await;
    }
    work(bench, &lease, run_of(&backfills[0], 10), Verdict::Failed).await;
    let facts = async |seconds| {
        let question = Question::at(s(seconds));
        bench.store.load_facts(TENANT, &by_name("j"), question, KEPT).await.unwrap()
    };
    let mut both = facts(10).await.backfilled;
    both.sort_by_key(|backfilled| backfilled.state);
    let expected = [(&backfills[1], State::Waiting), (&backfills[0], State::Failed)];
    let runs = expected.map(|(backfill, state)| Backfilled {
        backfill: backfill.id,
        by: "tester".into(),
        created_at: backfill.created_at,
        run: run_of(backfill, 10),
        state: Some(state),
        is_running: true,
    });
    assert_eq!(both, runs);
    assert!(facts(10).await.run.is_none(), "a backfilled run is not the record of the tick");
    assert!(facts(11).await.backfilled.iter().all(|backfilled| backfilled.state.is_none()), "not a tick");
    let run = bench.store.load_run_facts(TENANT, run_of(&backfills[0], 10)).await.unwrap();
    assert_eq!(run.backfill.map(|backfilled| backfilled.backfill), Some(backfills[0].id));
}
