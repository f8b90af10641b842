//! Calendars: versions that apply from an instant on, and the jobs that use them. The clock starts on 2026-11-16.

use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, CalendarSpec},
    edit::Change,
    ids::{TenantId, Version},
    job::JobSpec,
    plan::Fate,
    run::{SkipReason, State},
    time::DbTime,
};

use super::{
    Bench, LIMITS, OTHER_TENANT, START, TENANT, actor, by_name, overlapping, pause, raised, s, spec, tick, ticks,
};
use crate::{CalendarPut, JobFilter, PutCalendar, Result, RowAnswer, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_calendars {
    ($open:path) => {
        $crate::conformance_group! { $open, calendars:
            a_calendar_is_created_read_listed_and_deleted,
            deleting_a_calendar_does_not_change_others,
            putting_an_unchanged_calendar_makes_no_new_version,
            a_put_with_a_wrong_version_is_refused,
            calendars_per_tenant_are_limited,
            a_job_that_uses_an_unknown_calendar_is_refused,
            a_loaded_job_has_its_calendars,
            a_new_version_raises_the_epochs_of_the_jobs_that_use_it,
            ticks_planned_under_an_old_version_are_stale,
            an_edit_applies_to_each_tick_the_calendar_version_of_its_instant,
            versions_keep_their_order_when_the_clock_goes_back,
            only_the_newest_versions_are_kept,
            a_calendar_that_a_job_uses_cannot_be_deleted,
            calendars_do_not_cross_tenants,
            calendars_have_audit_rows,
        }
    };
}

const TODAY: &str = "2026-11-16";

const OTHER_DAY: &str = "2026-12-25";

fn dates(dates: &[&str]) -> CalendarSpec {
    CalendarSpec::new("UTC", dates.iter().map(|date| date.parse().unwrap()).collect(), vec![]).unwrap()
}

async fn try_put(bench: &Bench, tenant: TenantId, name: &str, days: &[&str]) -> Result<CalendarPut> {
    let put = PutCalendar { name: name.into(), spec: dates(days), if_match: None };
    bench.store.put_calendar(tenant, &actor(), put).await
}

async fn put(bench: &Bench, name: &str, days: &[&str]) -> CalendarPut {
    try_put(bench, TENANT, name, days).await.unwrap()
}

/// Puts a calendar for the rules of other files.
pub(super) async fn put_in(bench: &Bench, tenant: TenantId, name: &str) -> Result<CalendarPut> {
    try_put(bench, tenant, name, &[OTHER_DAY]).await
}

fn naming(mut spec: JobSpec, names: &[&str]) -> JobSpec {
    spec.schedule.as_mut().unwrap().exclude = names.iter().map(|name| (*name).to_owned()).collect();
    spec
}

fn replace(spec: JobSpec) -> Change {
    Change::Replace(Box::new(spec))
}

pub async fn a_calendar_is_created_read_listed_and_deleted(bench: &Bench) {
    let made = put(bench, "b", &[TODAY]).await;
    assert_eq!((made.made, made.effective_at, made.calendar.version.raw()), (true, Some(START), 1));
    bench.go(5);
    let edited = put(bench, "b", &[TODAY, OTHER_DAY]).await;
    assert_eq!((edited.made, edited.effective_at), (false, Some(s(5))));
    let read = bench.store.get_calendar(TENANT, "b").await.unwrap();
    assert_eq!(read, edited.calendar);
    assert_eq!((read.version.raw(), read.created_at, read.updated_at, read.jobs), (2, START, s(5), 0));
    assert_eq!((read.created_by.as_str(), &read.spec), ("tester", &dates(&[TODAY, OTHER_DAY])));
    put(bench, "a", &[]).await;
    let first = bench.store.list_calendars(TENANT, None, 1).await.unwrap();
    assert_eq!((first.items[0].name.as_str(), first.next.as_deref()), ("a", Some("a")));
    let rest = bench.store.list_calendars(TENANT, first.next.as_deref(), 10).await.unwrap();
    assert_eq!((rest.items, rest.next), (vec![read], None));
    bench.store.delete_calendar(TENANT, &actor(), "b", None).await.unwrap();
    assert!(matches!(bench.store.get_calendar(TENANT, "b").await, Err(StoreError::NotFound("calendar"))));
    let again = bench.store.delete_calendar(TENANT, &actor(), "b", None).await;
    assert!(matches!(again, Err(StoreError::NotFound("calendar"))));
    assert_eq!(put(bench, "b", &[]).await.calendar.version.raw(), 1, "it is a new calendar");
}

pub async fn deleting_a_calendar_does_not_change_others(bench: &Bench) {
    let gone = put(bench, "c", &[TODAY]).await.calendar;
    let left = put(bench, "left", &[TODAY]).await.calendar;
    let theirs = try_put(bench, OTHER_TENANT, "c", &[OTHER_DAY]).await.unwrap().calendar;
    bench.store.delete_calendar(TENANT, &actor(), &gone.name, None).await.unwrap();
    assert!(matches!(bench.store.get_calendar(TENANT, "c").await, Err(StoreError::NotFound("calendar"))));
    assert_eq!(bench.store.get_calendar(TENANT, "left").await.unwrap(), left);
    assert_eq!(bench.store.get_calendar(OTHER_TENANT, "c").await.unwrap(), theirs);
}

pub async fn putting_an_unchanged_calendar_makes_no_new_version(bench: &Bench) {
    put(bench, "c", &[TODAY]).await;
    let job = bench.create(naming(spec("j"), &["c"])).await;
    bench.go(5);
    let again = put(bench, "c", &[TODAY]).await;
    assert_eq!(
        (again.effective_at, again.made, again.calendar.version.raw(), again.calendar.jobs),
        (None, false, 1, 1)
    );
    assert_eq!(bench.epoch(&job).await, 1);
}

pub async fn a_put_with_a_wrong_version_is_refused(bench: &Bench) {
    let ask = |version| PutCalendar {
        name: "c".into(),
        spec: dates(&[OTHER_DAY]),
        if_match: Some(Version::from_raw(version)),
    };
    let none = bench.store.put_calendar(TENANT, &actor(), ask(1)).await;
    assert!(matches!(none, Err(StoreError::VersionMismatch { .. })), "the calendar does not exist");
    put(bench, "c", &[TODAY]).await;
    let old = bench.store.put_calendar(TENANT, &actor(), ask(2)).await;
    let Err(StoreError::VersionMismatch { has, wanted }) = old else { panic!("{old:?}") };
    assert_eq!((has.raw(), wanted.raw()), (1, 2));
    let refused = bench.store.delete_calendar(TENANT, &actor(), "c", Some(Version::from_raw(2))).await;
    assert!(matches!(refused, Err(StoreError::VersionMismatch { .. })));
    assert_eq!(bench.store.put_calendar(TENANT, &actor(), ask(1)).await.unwrap().calendar.version.raw(), 2);
}

pub async fn calendars_per_tenant_are_limited(bench: &Bench) {
    for n in 0..LIMITS.calendars_per_tenant_max {
        put(bench, &format!("c{n}"), &[]).await;
    }
    let refused = try_put(bench, TENANT, "more", &[]).await;
    assert!(matches!(refused, Err(StoreError::QuotaFull { what: "calendars", max: 5 })), "{refused:?}");
    put(bench, "c1", &[TODAY]).await;
    try_put(bench, OTHER_TENANT, "more", &[]).await.unwrap();
}

pub async fn a_job_that_uses_an_unknown_calendar_is_refused(bench: &Bench) {
    put(bench, "c", &[TODAY]).await;
    let refused = bench.created(TENANT, naming(spec("j"), &["c", "mars"])).await;
    let Err(StoreError::Invalid(found)) = refused else { panic!("{refused:?}") };
    assert_eq!((found.len(), found[0].field.as_str()), (1, "schedule.exclude"));
    assert!(found[0].message.contains("\"mars\""), "{}", found[0]);
    bench.create(spec("j")).await;
    let ask = super::change("j", replace(naming(spec("j"), &["mars"])));
    let refused = bench.store.edit_job(TENANT, &actor(), ask).await;
    let Err(StoreError::Invalid(found)) = refused else { panic!("{refused:?}") };
    assert!(found[0].field == "schedule.exclude" && found[0].message.contains("\"mars\""), "{}", found[0]);
}

pub async fn a_loaded_job_has_its_calendars(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    put(bench, "c", &[OTHER_DAY]).await;
    put(bench, "d", &[TODAY]).await;
    let job = bench.create(naming(spec("j"), &["c", "d"])).await;
    let other = bench.create(spec("free")).await;
    let excluded = |job: &everytick_domain::job::Job, at: DbTime| {
        job.schedule.as_ref().unwrap().excluded(at).map(|excluded| excluded.calendar.to_owned())
    };
    let loaded = bench.load(&job).await.job;
    assert_eq!(excluded(&loaded, s(10)).as_deref(), Some("d"));
    assert_eq!(excluded(&loaded, "2026-12-25T10:00:00Z".parse().unwrap()).as_deref(), Some("c"));
    assert_eq!(excluded(&loaded, s(86_400)), None);
    assert_eq!(excluded(&bench.load(&other).await.job, s(10)), None);
    let horizon = bench.store.load_horizon(&lease, &bench.all(), s(60), None, 10).await.unwrap();
    let overdue = bench.store.load_overdue(s(60), None, 10).await.unwrap();
    let walked = bench.store.walk_jobs(None, 10).await.unwrap().jobs;
    let listed = bench.store.list_jobs(TENANT, &JobFilter::default(), None, 10).await.unwrap().items;
    let got = bench.store.get_job(TENANT, &by_name("j")).await.unwrap();
    let seen = horizon.iter().chain(&overdue).map(|loaded| &*loaded.job);
    let seen = seen.chain(walked.iter().map(|walked| &walked.job)).chain(listed.iter().map(|record| &record.job));
    let seen: Vec<_> = seen.chain([&got.job, &*loaded]).filter(|seen| seen.id == job.id).collect();
    assert_eq!(seen.len(), 6);
    for seen in seen {
        assert_eq!(excluded(seen, s(10)).as_deref(), Some("d"));
    }
    assert_eq!(got.job.next_tick(got.cursor, START), Some(s(86_400)), "the first tick that fires");
    let known = bench.store.load_calendars(TENANT, &["d".into(), "mars".into()]).await.unwrap();
    assert_eq!(known.iter().map(|calendar| calendar.name()).collect::<Vec<_>>(), ["d"]);
}

pub async fn a_new_version_raises_the_epochs_of_the_jobs_that_use_it(bench: &Bench) {
    put(bench, "c", &[]).await;
    put(bench, "d", &[]).await;
    let mut jobs = Vec::new();
    for (name, calendars) in
        [("one", &["c"][..]), ("both", &["c", "d"]), ("other", &["d"]), ("none", &[]), ("gone", &["c"])]
    {
        jobs.push(bench.create(naming(spec(name), calendars)).await);
    }
    let mark = bench.store.changes(&bench.all(), Default::default(), 0).await.unwrap().mark;
    bench.edit("gone", replace(spec("gone"))).await;
    bench.go(5);
    assert_eq!(put(bench, "c", &[OTHER_DAY]).await.calendar.jobs, 2);
    let mut epochs = Vec::new();
    for job in &jobs {
        epochs.push(bench.epoch(job).await);
    }
    assert_eq!(
        epochs,
        [raised(s(5)), raised(s(5)), 1, 1, raised(START)],
        "the last epoch was raised by the job's own edit"
    );
    let changes = bench.store.changes(&bench.all(), mark, 100).await.unwrap().jobs;
    for (job, epoch) in jobs.iter().zip(epochs).filter(|(_, epoch)| *epoch > 1) {
        assert!(
            changes.iter().any(|changed| changed.id == job.id && changed.epoch.raw() == epoch),
            "{}",
            job.spec.name
        );
    }
    assert_eq!(bench.cursor(&jobs[0]).await, Some(s(10)), "the ticks do not change");
}

pub async fn ticks_planned_under_an_old_version_are_stale(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    put(bench, "c", &[]).await;
    let job = bench.create(naming(spec("j"), &["c"])).await;
    bench.go(10);
    put(bench, "c", &[TODAY]).await;
    let run = |seconds| vec![tick(&job, seconds, Fate::Run)];
    assert_eq!(bench.record(&lease, ticks(&job, 1, run(10))).await, [RowAnswer::Stale]);
    assert_eq!(bench.record(&lease, ticks(&job, bench.epoch(&job).await, run(10))).await, [RowAnswer::Inserted]);
}

/// A due, unrecorded tick follows the calendar version that applied at its instant.
pub async fn an_edit_applies_to_each_tick_the_calendar_version_of_its_instant(bench: &Bench) {
    put(bench, "c", &[]).await;
    let job = bench.create(naming(overlapping("j"), &["c"])).await;
    bench.go(20);
    put(bench, "c", &[TODAY]).await;
    bench.go(35);
    put(bench, "c", &[OTHER_DAY]).await;
    bench.go(45);
    bench.edit("j", pause()).await;
    let history: Vec<_> =
        bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.state, run.skip_reason)).collect();
    let (ran, left_out) = ((State::Waiting, None), (State::Skipped, Some(SkipReason::Calendar)));
    let expected = [(10, ran), (20, ran), (30, left_out), (40, ran)];
    assert_eq!(history, expected.map(|(at, (state, reason))| (s(at), state, reason)));
}

pub async fn versions_keep_their_order_when_the_clock_goes_back(bench: &Bench) {
    bench.go(100);
    put(bench, "c", &[]).await;
    bench.go(50);
    assert_eq!(put(bench, "c", &[TODAY]).await.effective_at, Some(s(100)));
    let job = bench.create(naming(spec("j"), &["c"])).await;
    let schedule = bench.load(&job).await.job.schedule.clone().unwrap();
    assert!(schedule.excluded(s(100)).is_none() && schedule.excluded(s(110)).is_some());
}

pub async fn only_the_newest_versions_are_kept(bench: &Bench) {
    let days = [&[TODAY][..], &[]];
    for n in 0..CALENDAR_VERSIONS_KEPT + 2 {
        bench.go(i64::try_from(n).unwrap() * 10);
        put(bench, "c", days[n % 2]).await;
    }
    let job = bench.create(naming(spec("j"), &["c"])).await;
    let schedule = bench.load(&job).await.job.schedule.clone().unwrap();
    let version = |seconds| schedule.excluded(s(seconds)).map(|excluded| excluded.version.raw());
    assert_eq!((version(21), version(31), version(41)), (Some(3), None, Some(5)));
    assert_eq!(version(5), Some(3), "the oldest kept version applies to instants before it");
}

pub async fn a_calendar_that_a_job_uses_cannot_be_deleted(bench: &Bench) {
    put(bench, "c", &[]).await;
    for name in ["one", "two", "three"] {
        bench.create(naming(spec(name), &["c"])).await;
    }
    let refused = bench.store.delete_calendar(TENANT, &actor(), "c", None).await;
    let Err(StoreError::InUse { mut by, count, .. }) = refused else { panic!("{refused:?}") };
    by.sort_unstable();
    assert_eq!((by, count), (vec!["one".to_owned(), "three".to_owned(), "two".to_owned()], 3));
    bench.edit("one", Change::Delete).await;
    bench.edit("two", replace(spec("two"))).await;
    let refused = bench.store.delete_calendar(TENANT, &actor(), "c", None).await;
    assert!(matches!(&refused, Err(StoreError::InUse { by, count: 1, .. }) if by == &["three"]), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("the job three"));
    let mut without = spec("three");
    without.schedule = None;
    bench.edit("three", replace(without)).await;
    bench.store.delete_calendar(TENANT, &actor(), "c", None).await.unwrap();
}

pub async fn calendars_do_not_cross_tenants(bench: &Bench) {
    put(bench, "c", &[TODAY]).await;
    assert!(bench.store.get_calendar(OTHER_TENANT, "c").await.is_err());
    assert!(bench.store.list_calendars(OTHER_TENANT, None, 10).await.unwrap().items.is_empty());
    assert!(bench.store.load_calendars(OTHER_TENANT, &["c".into()]).await.unwrap().is_empty());
    assert!(bench.store.delete_calendar(OTHER_TENANT, &actor(), "c", None).await.is_err());
    let refused = bench.created(OTHER_TENANT, naming(spec("j"), &["c"])).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))));
    try_put(bench, OTHER_TENANT, "c", &[]).await.unwrap();
    let (ours, theirs) = (
        bench.create(naming(spec("j"), &["c"])).await,
        bench.created(OTHER_TENANT, naming(spec("j"), &["c"])).await.unwrap().job,
    );
    let excluded = async |job| bench.load(job).await.job.schedule.clone().unwrap().excluded(s(10)).is_some();
    assert!(excluded(&ours).await && !excluded(&theirs).await);
    bench.go(5);
    try_put(bench, OTHER_TENANT, "c", &[OTHER_DAY]).await.unwrap();
    assert_eq!((bench.epoch(&ours).await, bench.epoch(&theirs).await), (1, raised(s(5))));
}

pub async fn calendars_have_audit_rows(bench: &Bench) {
    put(bench, "c", &[]).await;
    put(bench, "c", &[]).await;
    bench.go(5);
    put(bench, "c", &[TODAY]).await;
    bench.store.delete_calendar(TENANT, &actor(), "c", None).await.unwrap();
    let audit: Vec<_> = bench.audit().await.into_iter().map(|row| (row.at, row.action, row.subject)).collect();
    let row = |at, action: &str| (at, action.to_owned(), "calendar/c".to_owned());
    assert_eq!(audit, [row(START, "set_calendar"), row(s(5), "set_calendar"), row(s(5), "delete_calendar")]);
}
