//! Facts about one instant of a job, for `explain`.

use everytick_domain::{
    calendar::CalendarSpec,
    edit::Change,
    explain::{Facts, Question, Was, What},
    ids::{Cause, JobId, RunId},
    plan::Fate,
    run::{SkipReason, State},
    schedule::Timing,
    time::{DbTime, Span},
};

use super::{
    Bench, OTHER_TENANT, START, TENANT, actor, by_name, overlapping, pause, range, s, schedule, spec, tick, ticks,
};
use crate::{JobRef, NewJob, PutCalendar, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_facts {
    ($open:path) => {
        $crate::conformance_group! { $open, facts:
            the_row_and_the_range_of_an_instant_are_loaded,
            changes_are_listed_oldest_first_with_the_previous_definition,
            a_deleted_job_is_explained_by_its_id_and_by_its_name,
            the_default_instant_is_the_last_expected_tick_of_the_job,
            calendars_of_past_definitions_are_loaded,
            facts_do_not_cross_tenants,
        }
    };
}

async fn facts(bench: &Bench, job: &JobRef, at: Option<DbTime>) -> Facts {
    bench.store.load_facts(TENANT, job, Question { at, until: None }, Span::days(90)).await.unwrap()
}

fn state(facts: &Facts) -> Option<State> {
    facts.run.as_ref().map(|run| run.run.state)
}

pub async fn the_row_and_the_range_of_an_instant_are_loaded(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(100);
    bench.range(&lease, &range(&job, 1, 10, 50)).await;
    let rows = vec![tick(&job, 60, Fate::Run), tick(&job, 70, Fate::Skip(SkipReason::Overlap))];
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, rows)).await;
    for (at, state) in [(60, Some(State::Waiting)), (70, Some(State::Skipped)), (80, None), (30, None), (61, None)] {
        let found = facts(bench, &by_name("j"), Some(s(at))).await;
        assert_eq!(self::state(&found), state, "{at}");
        let inside = found.range.map(|range| (range.from, range.to, range.reason));
        assert_eq!(inside, (at == 30).then_some((s(10), s(50), SkipReason::Misfire)), "{at}");
        if let Some(run) = found.run {
            assert_eq!(run.run.run, RunId::of(job.id, Cause::Tick(s(at))));
        }
    }
    let found = facts(bench, &by_name("j"), Some(s(70))).await;
    assert_eq!(found.run.unwrap().run.skip_reason, Some(SkipReason::Overlap));
    assert_eq!((found.now, found.cursor, found.kept_from), (s(100), Some(s(60)), s(100).minus(Span::days(90))));
}

pub async fn changes_are_listed_oldest_first_with_the_previous_definition(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.go(5);
    bench.edit("j", pause()).await;
    bench.go(6);
    bench.edit("j", Change::Resume).await;
    bench.go(7);
    let mut edited = spec("j");
    edited.schedule = Some(schedule(Timing::Every { every: Span::seconds(60) }));
    edited.enabled = false;
    bench.edit("j", Change::Replace(Box::new(edited))).await;
    let found = facts(bench, &JobRef::Id(job.id), Some(s(8))).await;
    let was = Was { enabled: true, schedule: spec("j").schedule };
    let expected =
        [(START, What::Created), (s(5), What::Paused), (s(6), What::Resumed), (s(7), What::Edited(Some(was)))];
    let listed: Vec<_> = found.changes.iter().map(|changed| (changed.effective_at, changed.what.clone())).collect();
    assert_eq!(listed, expected);
    assert!(found.changes.iter().all(|changed| changed.by == "tester"));
}

pub async fn a_deleted_job_is_explained_by_its_id_and_by_its_name(bench: &Bench) {
    let first = bench.create(spec("j")).await;
    bench.go(5);
    bench.edit("j", Change::Delete).await;
    for named in [by_name("j"), JobRef::Id(first.id)] {
        let found = facts(bench, &named, Some(s(20))).await;
        assert_eq!((found.job.id, found.job.deleted_at), (first.id, Some(s(5))));
        assert_eq!(found.changes.last().unwrap().what, What::Deleted);
    }
    let new = NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(7)), spec: spec("j") };
    bench.store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap();
    assert_eq!(facts(bench, &by_name("j"), None).await.job.deleted_at, None, "the job that is not deleted");
    let unknown = bench.store.load_facts(TENANT, &by_name("unknown"), Question::default(), Span::days(90)).await;
    assert!(matches!(unknown, Err(StoreError::NotFound("job"))));
}

pub async fn the_default_instant_is_the_last_expected_tick_of_the_job(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(15);
    bench.waiting(&lease, &job, 10).await;
    let found = facts(bench, &by_name("j"), None).await;
    assert_eq!((found.run.as_ref().unwrap().run.scheduled_at, state(&found)), (s(10), Some(State::Waiting)));
}

pub async fn calendars_of_past_definitions_are_loaded(bench: &Bench) {
    for name in ["now", "then", "never"] {
        let spec = CalendarSpec::new("UTC", vec![], vec![]).unwrap();
        let put = PutCalendar { name: name.into(), spec, if_match: None };
        bench.store.put_calendar(TENANT, &actor(), put).await.unwrap();
    }
    let naming = |calendar: &str| {
        let mut spec = spec("j");
        spec.schedule.as_mut().unwrap().exclude = vec![calendar.to_owned()];
        spec
    };
    bench.create(naming("then")).await;
    bench.edit("j", Change::Replace(Box::new(naming("now")))).await;
    let mut names: Vec<_> =
        facts(bench, &by_name("j"), None).await.calendars.iter().map(|c| c.name().to_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, ["now", "then"]);
}

pub async fn facts_do_not_cross_tenants(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    for named in [by_name("j"), JobRef::Id(job.id)] {
        let found = bench.store.load_facts(OTHER_TENANT, &named, Question::default(), Span::days(90)).await;
        assert!(matches!(found, Err(StoreError::NotFound("job"))));
    }
}
