//! Edit, pause, resume and delete: the old definition applies up to `effective_at`, the new one after it, and no tick follows both.

use everytick_domain::{
    edit::Change,
    ids::{JobId, Version},
    job::{JobSpec, Overlap},
    plan::Fate,
    run::{SkipReason, State, Verdict},
    schedule::Timing,
    time::Span,
};

use super::{
    Bench, OTHER_TENANT, START, TENANT, actor, by_name, change, new_run, overlapping, pause, raised, s, schedule, spec,
    tick, ticks,
};
use crate::{AuditFilter, EditJob, JobRef, RowAnswer, SettleAnswer, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_edits {
    ($open:path) => {
        $crate::conformance_group! { $open, edits:
            a_pause_records_the_due_ticks_and_no_later_tick,
            an_edit_or_a_resume_cancels_no_open_run,
            a_resumed_job_continues_after_the_pause,
            an_edit_never_gets_the_epoch_of_an_earlier_edit_that_was_lost,
            a_deleted_job_is_not_found_and_frees_its_name,
            a_new_definition_applies_after_effective_at,
            ticks_planned_before_an_edit_are_stale_after_it,
            an_edit_with_a_wrong_version_is_refused,
            a_job_can_be_renamed_but_not_to_a_name_that_is_taken,
            an_edit_that_changes_nothing_writes_nothing,
            an_unknown_job_and_one_of_another_tenant_cannot_be_edited,
            an_edit_to_an_at_that_has_passed_is_refused,
            an_edit_to_an_at_that_has_just_passed_records_its_tick,
            an_edit_to_an_at_that_is_already_recorded_is_refused,
            effective_at_is_not_before_the_last_recorded_tick_when_the_clock_goes_back,
            ticks_already_recorded_are_not_recorded_again_by_an_edit,
            an_edit_skips_due_ticks_that_overlap_an_open_run,
            an_edit_records_a_long_backlog_as_ranges,
            a_pause_does_not_change_open_runs,
            a_pause_with_cancel_ends_open_runs_and_returns_the_claimed_ones,
            a_delete_with_cancel_ends_open_runs,
            an_edit_has_an_audit_row_that_names_effective_at,
            a_pause_keeps_its_note,
        }
    };
}

fn every(name: &str, seconds: u64) -> JobSpec {
    JobSpec { schedule: Some(schedule(Timing::Every { every: Span::seconds(seconds) })), ..spec(name) }
}

fn replace(spec: JobSpec) -> Change {
    Change::Replace(Box::new(spec))
}

pub async fn a_pause_records_the_due_ticks_and_no_later_tick(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(25);
    let edited = bench.edit("j", pause()).await;
    assert_eq!((edited.effective_at, edited.cursor, edited.cancelled.len()), (Some(s(25)), None, 0));
    assert_eq!(edited.job.paused.as_ref().unwrap().at, s(25));
    let history: Vec<_> = bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.state)).collect();
    assert_eq!(
        history,
        [(s(10), State::Waiting), (s(20), State::Waiting)],
        "an edit never records runs as born claimed"
    );
    assert_eq!(bench.due(&lease).await.len(), 2);
    bench.go(40);
    for epoch in [1, bench.epoch(&job).await] {
        let answers = bench.record(&lease, ticks(&job, epoch, vec![tick(&job, 30, Fate::Run)])).await;
        assert_eq!(answers, [RowAnswer::Stale]);
    }
}

pub async fn a_resumed_job_continues_after_the_pause(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.edit("j", pause()).await;
    bench.go(1_000);
    let edited = bench.edit("j", Change::Resume).await;
    assert_eq!((edited.effective_at, edited.cursor), (Some(s(1_000)), Some(s(1_010))));
    assert!(edited.job.paused.is_none());
    assert!(bench.history(&job).await.is_empty(), "a paused job has no ticks");
    assert_eq!((bench.cursor(&job).await, bench.epoch(&job).await), (Some(s(1_010)), raised(s(1_000))));
}

/// A promotion may lose the last edit. The next edit starts from the same row and must get another epoch. Otherwise a node that
/// knows the lost edit mistakes the new one for it. So an epoch is at least the microseconds of the clock at its edit.
pub async fn an_edit_never_gets_the_epoch_of_an_earlier_edit_that_was_lost(bench: &Bench) {
    let queue = bench.create(JobSpec { overlap: Overlap::Queue { limit: 10 }, ..spec("queue") }).await;
    let job = bench.create(spec("j")).await;
    for (at, change) in [(1, pause()), (2, Change::Resume), (3, replace(every("j", 60))), (4, Change::Delete)] {
        bench.go(at);
        bench.edit("j", change).await;
        assert_eq!(bench.epoch(&job).await, raised(s(at)));
    }
    bench.go(5);
    bench.trigger(new_run("queue", "k")).await;
    assert_eq!(bench.epoch(&queue).await, raised(s(5)), "a request under overlap queue raises it too");
    bench.go(0);
    bench.edit("queue", pause()).await;
    assert_eq!(bench.epoch(&queue).await, raised(s(5)) + 1, "a clock that goes back does not lower an epoch");
}

pub async fn a_deleted_job_is_not_found_and_frees_its_name(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(5);
    let edited = bench.edit("j", Change::Delete).await;
    assert_eq!((edited.job.deleted_at, edited.cursor), (Some(s(5)), None));
    for name in [by_name("j"), JobRef::Id(job.id)] {
        assert!(matches!(bench.store.get_job(TENANT, &name).await, Err(StoreError::NotFound("job"))));
        let again = EditJob { job: name, change: Change::Delete, if_match: None, cancel: false };
        assert!(matches!(bench.store.edit_job(TENANT, &actor(), again).await, Err(StoreError::NotFound("job"))));
    }
    let new = crate::NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(7)), spec: spec("j") };
    let made = bench.store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap();
    assert_ne!(made.job.id, job.id);
}

pub async fn a_new_definition_applies_after_effective_at(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(25);
    let edited = bench.edit("j", replace(every("j", 60))).await;
    assert_eq!(
        (edited.effective_at, edited.cursor, edited.job.version),
        (Some(s(25)), Some(s(60)), Version::from_raw(2))
    );
    assert_eq!((edited.job.created_at, edited.job.updated_at), (START, s(25)));
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.epoch.raw(), loaded.cursor, loaded.job.version.raw()), (raised(s(25)), Some(s(60)), 2));
    assert_eq!(*loaded.job.spec, every("j", 60));
    let states: Vec<_> = bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.state)).collect();
    assert_eq!(states, [(s(10), State::Skipped), (s(20), State::Waiting)], "only the newest due tick runs");
}

pub async fn ticks_planned_before_an_edit_are_stale_after_it(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.edit("j", replace(every("j", 60))).await;
    bench.go(60);
    for seconds in [10, 60] {
        let rows = vec![tick(&job, seconds, Fate::Run)];
        assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Stale]);
    }
    let epoch = bench.epoch(&job).await;
    assert_eq!(bench.record(&lease, ticks(&job, epoch, vec![tick(&job, 60, Fate::Run)])).await, [RowAnswer::Inserted]);
}

pub async fn an_edit_with_a_wrong_version_is_refused(bench: &Bench) {
    bench.create(spec("j")).await;
    let ask = |version| EditJob { if_match: Some(Version::from_raw(version)), ..change("j", pause()) };
    let refused = bench.store.edit_job(TENANT, &actor(), ask(7)).await;
    let Err(StoreError::VersionMismatch { has, wanted }) = refused else { panic!("{refused:?}") };
    assert_eq!((has.raw(), wanted.raw()), (1, 7));
    assert_eq!(bench.version("j").await.raw(), 1);
    bench.store.edit_job(TENANT, &actor(), ask(1)).await.unwrap();
    assert_eq!(bench.version("j").await.raw(), 2);
}

pub async fn a_job_can_be_renamed_but_not_to_a_name_that_is_taken(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.create(spec("other")).await;
    let refused = bench.store.edit_job(TENANT, &actor(), change("j", replace(spec("other")))).await;
    assert!(matches!(&refused, Err(StoreError::NameTaken(name)) if name == "other"), "{refused:?}");
    assert_eq!(bench.version("j").await.raw(), 1);
    bench.edit("j", replace(spec("new"))).await;
    assert_eq!(bench.store.get_job(TENANT, &by_name("new")).await.unwrap().job.id, job.id);
    assert!(matches!(bench.store.get_job(TENANT, &by_name("j")).await, Err(StoreError::NotFound("job"))));
}

pub async fn an_edit_that_changes_nothing_writes_nothing(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(25);
    for nothing in [replace(spec("j")), Change::Resume] {
        let edited = bench.edit("j", nothing).await;
        assert_eq!((edited.effective_at, edited.cursor, edited.job.version.raw()), (None, Some(s(10)), 1));
    }
    assert_eq!((bench.epoch(&job).await, bench.audit().await.len()), (1, 1));
    assert!(bench.history(&job).await.is_empty());
}

pub async fn an_unknown_job_and_one_of_another_tenant_cannot_be_edited(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    for name in [by_name("j"), JobRef::Id(job.id)] {
        let ask = EditJob { job: name, change: Change::Delete, if_match: None, cancel: false };
        assert!(matches!(bench.store.edit_job(OTHER_TENANT, &actor(), ask).await, Err(StoreError::NotFound("job"))));
    }
    let unknown = bench.store.edit_job(TENANT, &actor(), change("unknown", pause())).await;
    assert!(matches!(unknown, Err(StoreError::NotFound("job"))));
    assert_eq!(bench.version("j").await.raw(), 1);
}

pub async fn an_edit_to_an_at_that_has_passed_is_refused(bench: &Bench) {
    bench.create(spec("j")).await;
    let past = JobSpec { schedule: Some(schedule(Timing::At { at: s(-3_600) })), ..spec("j") };
    let refused = bench.store.edit_job(TENANT, &actor(), change("j", replace(past))).await;
    assert!(matches!(&refused, Err(StoreError::Invalid(found)) if found[0].field == "schedule.at"), "{refused:?}");
    assert_eq!(bench.version("j").await.raw(), 1);
}

fn at(seconds: i64) -> JobSpec {
    JobSpec { schedule: Some(schedule(Timing::At { at: s(seconds) })), ..spec("j") }
}

pub async fn an_edit_to_an_at_that_has_just_passed_records_its_tick(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(every("j", 3_600)).await);
    bench.go(30);
    let edited = bench.edit("j", replace(at(27))).await;
    assert_eq!((edited.effective_at, edited.cursor), (Some(s(30)), None));
    let history: Vec<_> = bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.state)).collect();
    assert_eq!(history, [(s(27), State::Waiting)], "although the cursor of the old definition is after it");
    assert_eq!(bench.due(&lease).await.len(), 1, "the run is due at once");
}

pub async fn an_edit_to_an_at_that_is_already_recorded_is_refused(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let first = bench.claimed(&lease, &job, 10).await;
    bench.settle(&first, Verdict::Succeeded).await;
    bench.go(13);
    let refused = bench.store.edit_job(TENANT, &actor(), change("j", replace(at(10)))).await;
    assert!(matches!(&refused, Err(StoreError::Invalid(found)) if found[0].field == "schedule.at"), "{refused:?}");
    assert_eq!((bench.version("j").await.raw(), bench.cursor(&job).await.is_some()), (1, true), "nothing was written");
}

pub async fn effective_at_is_not_before_the_last_recorded_tick_when_the_clock_goes_back(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(50);
    let rows = (1..=5).map(|n| tick(&job, n * 10, Fate::Skip(SkipReason::Overlap))).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    bench.go(25);
    let edited = bench.edit("j", replace(every("j", 15))).await;
    assert_eq!((edited.effective_at, edited.cursor), (Some(s(50)), Some(s(60))));
    assert_eq!(bench.history(&job).await.len(), 5);
    // The cursor has passed all ticks, but they still count.
    bench.go(20);
    let edited = bench.edit("j", replace(every("j", 10))).await;
    assert_eq!((edited.effective_at, edited.cursor), (Some(s(50)), Some(s(60))));
}

pub async fn ticks_already_recorded_are_not_recorded_again_by_an_edit(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(20);
    let first = bench.claimed(&lease, &job, 10).await;
    bench.settle(&first, Verdict::Succeeded).await;
    bench.go(25);
    bench.edit("j", pause()).await;
    let history: Vec<_> = bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.state)).collect();
    assert_eq!(history, [(s(10), State::Succeeded), (s(20), State::Waiting)]);
}

pub async fn an_edit_skips_due_ticks_that_overlap_an_open_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    bench.go(25);
    bench.edit("j", pause()).await;
    let last = bench.history(&job).await.pop().unwrap();
    assert_eq!((last.scheduled_at, last.state, last.skip_reason), (s(20), State::Skipped, Some(SkipReason::Overlap)));
    assert_eq!(last.finished_at, Some(s(25)));
}

pub async fn an_edit_records_a_long_backlog_as_ranges(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(100_000);
    bench.edit("j", pause()).await;
    let history = bench.history(&job).await;
    let counted: u64 = history.iter().map(|run| run.range.map_or(1, |range| range.count)).sum();
    assert_eq!(counted, 10_000, "every tick is recorded once");
    assert!(history[0].range.is_some() && history.len() < 100);
}

pub async fn a_pause_does_not_change_open_runs(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let claimed = bench.claimed(&lease, &job, 10).await;
    let waiting = bench.waiting(&lease, &job, 20).await;
    let edited = bench.edit("j", pause()).await;
    assert!(edited.cancelled.is_empty());
    assert_eq!(bench.run(waiting).await.state, State::Waiting);
    assert_eq!(bench.settle(&claimed, Verdict::Succeeded).await, SettleAnswer::Settled);
    bench.claim(&lease, waiting).await;
}

async fn cancels(bench: &Bench, with: Change) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let other = bench.create(spec("other")).await;
    bench.go(30);
    let over = bench.claimed(&lease, &job, 10).await;
    bench.settle(&over, Verdict::Succeeded).await;
    let claimed = bench.claimed(&lease, &job, 20).await;
    let waiting = bench.waiting(&lease, &job, 30).await;
    let bystander = bench.waiting(&lease, &other, 30).await;
    bench.go(35);
    let ask = EditJob { cancel: true, ..change("j", with) };
    let edited = bench.store.edit_job(TENANT, &actor(), ask).await.unwrap();
    assert_eq!(edited.cancelled, [claimed.id]);
    for id in [claimed.id, waiting] {
        let run = bench.run(id).await;
        assert_eq!((run.state, run.finished_at), (State::Cancelled, Some(s(35))));
    }
    assert!(bench.run(claimed.id).await.fence > claimed.fence);
    assert_eq!(bench.settle(&claimed, Verdict::Succeeded).await, SettleAnswer::Stale);
    assert_eq!(bench.run(over.id).await.state, State::Succeeded);
    assert_eq!(bench.due(&lease).await, [bystander]);
    assert!(bench.load(&job).await.open.is_empty());
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
    let audit = bench.store.list_audit(TENANT, &AuditFilter::default(), None, 50).await.unwrap().items;
    let noted = |run: everytick_domain::ids::RunId| {
        audit.iter().any(|row| row.action == "cancel" && row.subject == run.to_string())
    };
    assert!(noted(claimed.id) && noted(waiting), "each cancelled run has an audit row");
}

pub async fn a_pause_with_cancel_ends_open_runs_and_returns_the_claimed_ones(bench: &Bench) {
    cancels(bench, pause()).await;
}

pub async fn a_delete_with_cancel_ends_open_runs(bench: &Bench) {
    cancels(bench, Change::Delete).await;
}

pub async fn an_edit_or_a_resume_cancels_no_open_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let claimed = bench.claimed(&lease, &job, 10).await;
    let waiting = bench.waiting(&lease, &job, 20).await;
    let replaced = JobSpec { description: "new".into(), ..overlapping("j") };
    for with in [replace(replaced), Change::Resume] {
        let ask = EditJob { cancel: true, ..change("j", with) };
        let edited = bench.store.edit_job(TENANT, &actor(), ask).await.unwrap();
        assert!(edited.cancelled.is_empty());
    }
    assert_eq!(bench.run(waiting).await.state, State::Waiting);
    assert_eq!(bench.settle(&claimed, Verdict::Succeeded).await, SettleAnswer::Settled);
}

pub async fn an_edit_has_an_audit_row_that_names_effective_at(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(25);
    bench.edit("j", replace(every("j", 60))).await;
    bench.edit("j", pause()).await;
    bench.edit("j", Change::Resume).await;
    bench.edit("j", Change::Delete).await;
    let audit = bench.audit().await;
    let actions: Vec<_> = audit.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["create", "edit", "pause", "resume", "delete"]);
    for row in &audit[1..] {
        assert_eq!((row.at, row.actor.as_str(), &row.subject), (s(25), "tester", &job.id.to_string()));
        assert!(row.detail.contains(&s(25).to_string()), "{}", row.detail);
    }
}

pub async fn a_pause_keeps_its_note(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.edit("j", Change::Pause { note: Some("410 Gone".into()) }).await;
    let paused = bench.store.get_job(TENANT, &by_name("j")).await.unwrap().job.paused.unwrap();
    assert_eq!((paused.at, paused.note.as_deref()), (START, Some("410 Gone")));
    let audit = bench.audit().await;
    assert!(audit[1].action == "pause" && audit[1].detail.contains("410 Gone"), "{}", audit[1].detail);
}
