//! Creating jobs: names, quotas, schedules that can fire, and repeated requests.

use everytick_domain::{
    edit::Change,
    ids::{JobId, TenantId},
    job::JobSpec,
    retry::RetryPolicy,
    schedule::{Fold, Gap, ScheduleSpec, Timing},
    target::{HttpMethod, HttpTarget, TargetSpec},
    time::{DbTime, Span},
};

use super::{Bench, LIMITS, OTHER_TENANT, START, TENANT, actor, by_name, job_id, s, schedule, spec};
use crate::{Created, IDEMPOTENCY_KEPT, IdempotencyKey, JobFilter, NewJob, Result, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_creates {
    ($open:path) => {
        $crate::conformance_group! { $open, creates:
            a_new_job_starts_at_its_first_tick_after_now,
            a_home_region_is_stored_until_an_edit_changes_it,
            a_disabled_job_and_one_without_a_schedule_have_no_cursor,
            a_job_name_is_unique,
            a_job_name_is_unique_in_a_batch,
            tenants_may_have_jobs_of_the_same_name,
            the_quota_is_enforced_and_a_deleted_job_does_not_count,
            a_refused_job_does_not_stop_the_others_of_its_batch,
            an_at_in_the_past_is_refused_with_the_time_of_the_store,
            an_at_that_has_just_passed_is_accepted,
            a_schedule_that_never_fires_is_refused_unless_disabled,
            a_repeated_request_returns_the_same_job,
            a_key_reused_for_another_job_is_refused,
            a_key_belongs_to_its_tenant,
            a_refused_request_does_not_use_its_key,
            a_new_job_has_an_audit_row,
            jobs_created_together_have_an_audit_row_each,
            a_job_is_read_as_it_was_created,
        }
    };
}

pub async fn a_new_job_starts_at_its_first_tick_after_now(bench: &Bench) {
    bench.go(20);
    let created = bench.created(TENANT, spec("j")).await.unwrap();
    assert_eq!((created.cursor, created.replayed), (Some(s(30)), false));
    let job = created.job;
    assert_eq!((job.version.raw(), job.tenant, job.created_at, job.updated_at), (1, TENANT, s(20), s(20)));
    assert_eq!((job.created_by.as_str(), job.paused.is_some(), job.deleted_at), ("tester", false, None));
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.epoch.raw(), loaded.cursor, loaded.open.len()), (1, Some(s(30)), 0));
    assert_eq!(*loaded.job.spec, spec("j"));
}

pub async fn a_disabled_job_and_one_without_a_schedule_have_no_cursor(bench: &Bench) {
    let disabled = JobSpec { enabled: false, ..spec("disabled") };
    let manual = JobSpec { schedule: None, ..spec("manual") };
    for spec in [disabled, manual] {
        assert_eq!(bench.created(TENANT, spec).await.unwrap().cursor, None);
    }
}

pub async fn a_job_name_is_unique(bench: &Bench) {
    bench.create(spec("j")).await;
    let job = NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(7)), spec: spec("j") };
    let again = bench.store.create_jobs(TENANT, &actor(), vec![job], None).await.unwrap().remove(0);
    assert!(matches!(again, Err(StoreError::NameTaken(name)) if name == "j"));
}

pub async fn a_job_name_is_unique_in_a_batch(bench: &Bench) {
    let job = |n| NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(n)), spec: spec("j") };
    let created = bench.store.create_jobs(TENANT, &actor(), vec![job(7), job(8)], None).await.unwrap();
    assert!(created[0].is_ok());
    assert!(matches!(&created[1], Err(StoreError::NameTaken(name)) if name == "j"));
}

pub async fn tenants_may_have_jobs_of_the_same_name(bench: &Bench) {
    bench.create(spec("j")).await;
    let theirs = bench.created(OTHER_TENANT, spec("j")).await.unwrap().job;
    assert_eq!(theirs.tenant, OTHER_TENANT);
    assert_eq!(bench.store.get_job(OTHER_TENANT, &by_name("j")).await.unwrap().job.id, theirs.id);
}

pub async fn the_quota_is_enforced_and_a_deleted_job_does_not_count(bench: &Bench) {
    let max = LIMITS.jobs_per_tenant_max;
    let jobs = (0..=max).map(|n| format!("j{n}")).map(|name| NewJob { id: job_id(TENANT, &name), spec: spec(&name) });
    let created = bench.store.create_jobs(TENANT, &actor(), jobs.collect(), None).await.unwrap();
    assert_eq!(created.iter().filter(|created| created.is_ok()).count() as u64, max);
    assert!(matches!(created.last(), Some(Err(StoreError::QuotaFull { what: "jobs", max: at })) if *at == max));
    let refused = bench.created(TENANT, spec("more")).await;
    assert!(matches!(refused, Err(StoreError::QuotaFull { .. })));
    assert!(bench.created(OTHER_TENANT, spec("more")).await.is_ok());
    bench.edit("j0", Change::Delete).await;
    assert!(bench.created(TENANT, spec("more")).await.is_ok());
    assert!(matches!(bench.created(TENANT, spec("still-more")).await, Err(StoreError::QuotaFull { .. })));
}

pub async fn a_refused_job_does_not_stop_the_others_of_its_batch(bench: &Bench) {
    let mut past = spec("past");
    past.schedule = Some(schedule(Timing::At { at: s(-3_600) }));
    let jobs = [spec("a"), past, spec("b")].map(|spec| NewJob { id: job_id(TENANT, &spec.name), spec });
    let created = bench.store.create_jobs(TENANT, &actor(), jobs.into(), None).await.unwrap();
    assert_eq!(created.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let listed = bench.store.list_jobs(TENANT, &Default::default(), None, 10).await.unwrap();
    assert_eq!(listed.items.iter().map(|job| job.job.spec.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

fn at(at: DbTime) -> JobSpec {
    JobSpec { schedule: Some(schedule(Timing::At { at })), ..spec("once") }
}

fn field(created: Result<Created>) -> String {
    match created {
        Err(StoreError::Invalid(found)) => found[0].field.clone(),
        other => panic!("{other:?}"),
    }
}

pub async fn an_at_in_the_past_is_refused_with_the_time_of_the_store(bench: &Bench) {
    let created = bench.created(TENANT, at(s(-61))).await;
    let said = created.as_ref().unwrap_err().to_string();
    assert!(said.contains(&START.to_string()), "{said}");
    assert_eq!(field(created), "schedule.at");
}

pub async fn an_at_that_has_just_passed_is_accepted(bench: &Bench) {
    assert_eq!(bench.created(TENANT, at(s(-60))).await.unwrap().cursor, Some(s(-60)));
}

pub async fn a_schedule_that_never_fires_is_refused_unless_disabled(bench: &Bench) {
    let mut over = spec("over");
    over.schedule.as_mut().unwrap().ends_at = Some(s(-3_600));
    assert_eq!(field(bench.created(TENANT, over.clone()).await), "schedule");
    over.enabled = false;
    assert_eq!(bench.created(TENANT, over).await.unwrap().cursor, None);
}

fn key(fingerprint: u8) -> IdempotencyKey {
    IdempotencyKey { key: "k".into(), fingerprint: [fingerprint; 32] }
}

async fn create_under(
    bench: &Bench,
    tenant: TenantId,
    id: u128,
    spec: JobSpec,
    key: &IdempotencyKey,
) -> Result<Created> {
    let job = NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(id)), spec };
    bench.store.create_jobs(tenant, &actor(), vec![job], Some(key)).await.unwrap().remove(0)
}

pub async fn a_repeated_request_returns_the_same_job(bench: &Bench) {
    let first = create_under(bench, TENANT, 1, spec("j"), &key(1)).await.unwrap();
    assert!(!first.replayed);
    bench.clock.set(START.plus(IDEMPOTENCY_KEPT).minus(Span::seconds(1)));
    let again = create_under(bench, TENANT, 2, spec("j"), &key(1)).await.unwrap();
    assert!(again.replayed);
    assert_eq!((again.job.id, again.cursor), (first.job.id, first.cursor));
    assert_eq!(bench.audit().await.len(), 1);
}

pub async fn a_key_reused_for_another_job_is_refused(bench: &Bench) {
    create_under(bench, TENANT, 1, spec("j"), &key(1)).await.unwrap();
    let other = create_under(bench, TENANT, 2, spec("other"), &key(2)).await;
    assert!(matches!(other, Err(StoreError::KeyReused)), "{other:?}");
    assert!(matches!(bench.store.get_job(TENANT, &by_name("other")).await, Err(StoreError::NotFound("job"))));
}

pub async fn a_key_belongs_to_its_tenant(bench: &Bench) {
    create_under(bench, TENANT, 1, spec("j"), &key(1)).await.unwrap();
    let theirs = create_under(bench, OTHER_TENANT, 2, spec("other"), &key(2)).await.unwrap();
    assert!(!theirs.replayed);
}

pub async fn a_refused_request_does_not_use_its_key(bench: &Bench) {
    bench.create(spec("j")).await;
    let refused = create_under(bench, TENANT, 1, spec("j"), &key(1)).await;
    assert!(matches!(refused, Err(StoreError::NameTaken(_))));
    assert!(!create_under(bench, TENANT, 2, spec("other"), &key(2)).await.unwrap().replayed);
}

pub async fn a_new_job_has_an_audit_row(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let audit = bench.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].at, audit[0].actor.as_str(), audit[0].action.as_str()), (START, "tester", "create"));
    assert_eq!(audit[0].subject, job.id.to_string());
}

pub async fn jobs_created_together_have_an_audit_row_each(bench: &Bench) {
    let new = |n: u128| NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(n)), spec: spec(&format!("j{n}")) };
    let mut jobs: Vec<NewJob> = (1..=15).map(new).collect();
    let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
    jobs.push(NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(99)), spec: spec("j1") });
    let made = bench.store.create_jobs(TENANT, &actor(), jobs, None).await.unwrap();
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 15);
    let audit = bench.audit().await;
    let mut subjects: Vec<_> = audit.iter().map(|row| row.subject.clone()).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ids, "one row per created job and none for the refused job");
    assert!(audit.iter().all(|row| (row.at, row.actor.as_str(), row.action.as_str()) == (START, "tester", "create")));
}

/// Default values need not be stored, but a read returns the definition as it was created.
pub async fn a_job_is_read_as_it_was_created(bench: &Bench) {
    let http = |headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let url = "https://example.org/hook".to_owned();
        TargetSpec::Http(HttpTarget { url, method: HttpMethod::Post, headers, secret: None, client_cert: None })
    };
    let cron = |text: &str| {
        let timing = ScheduleSpec::cron(text, Some("Europe/Paris"), Gap::Shift, Fold::First, "j").unwrap();
        Some(ScheduleSpec::from(timing))
    };
    let plain = JobSpec {
        schedule: cron("15 3 * * *"),
        target: http(&[]),
        retry: RetryPolicy::with_retries(3),
        timeout: Span::seconds(30),
        ..spec("plain")
    };
    let specs = [
        plain.clone(),
        spec("shell"),
        JobSpec { name: "hashed".into(), schedule: cron("H 3 * * *"), ..plain.clone() },
        JobSpec { name: "unscheduled".into(), schedule: None, enabled: false, ..plain.clone() },
        JobSpec {
            name: "Said".into(),
            description: "Says a LOT".into(),
            labels: [("team".to_owned(), "billing".to_owned())].into(),
            target: http(&[("x-a", "b")]),
            payload: Some("{\"a\": 1}".into()),
            priority: 9,
            timeout: Span::hours(1),
            ..plain.clone()
        },
    ];
    let new = |(n, spec): (usize, &JobSpec)| NewJob {
        id: JobId::from_uuid(uuid::Uuid::from_u128(n as u128 + 1)),
        spec: spec.clone(),
    };
    let jobs: Vec<NewJob> = specs.iter().enumerate().map(new).collect();
    let made = bench.store.create_jobs(TENANT, &actor(), jobs.clone(), None).await.unwrap();
    let ids: Vec<JobId> = made.into_iter().map(|made| made.unwrap().job.id).collect();
    for (loaded, spec) in bench.store.load_jobs(&ids).await.unwrap().iter().zip(&specs) {
        assert_eq!(*loaded.job.spec, *spec);
        let read = bench.store.get_job(TENANT, &by_name(&spec.name)).await.unwrap();
        assert_eq!(*read.job.spec, *spec);
    }
    let found = async |q: &str| {
        let filter = JobFilter { q: Some(q.to_owned()), ..JobFilter::default() };
        let page = bench.store.list_jobs(TENANT, &filter, None, 10).await.unwrap();
        page.items.into_iter().map(|record| record.job.spec.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("sAI").await, ["Said"]);
    assert_eq!(found("a lot").await, ["Said"]);
    assert_eq!(found("plain").await, ["plain"]);
    bench.edit("plain", Change::Replace(Box::new(JobSpec { priority: 1, ..plain.clone() }))).await;
    let edited = bench.store.get_job(TENANT, &by_name("plain")).await.unwrap().job;
    assert_eq!(*edited.spec, JobSpec { priority: 1, ..plain });
    assert_eq!(found("plain").await, ["plain"]);
}

pub async fn a_home_region_is_stored_until_an_edit_changes_it(bench: &Bench) {
    let at_home = |region: &str| JobSpec { home_region: Some(region.to_owned()), ..spec("j") };
    let home = async || {
        let read = bench.store.get_job(TENANT, &by_name("j")).await.unwrap().job;
        read.spec.home_region.clone()
    };
    bench.create(at_home("eu")).await;
    assert_eq!(home().await.as_deref(), Some("eu"));
    assert!(bench.edit("j", Change::Replace(Box::new(at_home("us")))).await.effective_at.is_some());
    assert_eq!(home().await.as_deref(), Some("us"));
    bench.edit("j", Change::Replace(Box::new(spec("j")))).await;
    assert_eq!(home().await, None);
}
