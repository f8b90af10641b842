//! Making jobs: names, quotas, schedules that can fire, and requests that are repeated.

use everytick_domain::{
    edit::Change,
    ids::{JobId, TenantId},
    job::JobSpec,
    schedule::Timing,
    time::{DbTime, Span},
};

use super::{Bench, LIMITS, OTHER_TENANT, START, TENANT, actor, by_name, job_id, s, schedule, spec};
use crate::{Created, IDEMPOTENCY_KEPT, IdempotencyKey, NewJob, Result, StoreError};

pub async fn a_new_job_begins_at_its_first_tick_after_the_clock(bench: &Bench) {
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

pub async fn a_name_can_be_had_once(bench: &Bench) {
    bench.create(spec("j")).await;
    let job = NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(7)), spec: spec("j") };
    let again = bench.store.create_jobs(TENANT, &actor(), vec![job], None).await.unwrap().remove(0);
    assert!(matches!(again, Err(StoreError::NameTaken(name)) if name == "j"));
}

pub async fn a_name_can_be_had_once_in_a_batch(bench: &Bench) {
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

pub async fn the_quota_holds_and_a_deleted_job_frees_a_place(bench: &Bench) {
    let max = LIMITS.jobs_per_tenant_max;
    let jobs = (0..=max).map(|n| format!("j{n}")).map(|name| NewJob { id: job_id(TENANT, &name), spec: spec(&name) });
    let created = bench.store.create_jobs(TENANT, &actor(), jobs.collect(), None).await.unwrap();
    assert_eq!(created.iter().filter(|created| created.is_ok()).count() as u64, max);
    assert!(matches!(created.last(), Some(Err(StoreError::QuotaReached(at))) if *at == max));
    let refused = bench.created(TENANT, spec("more")).await;
    assert!(matches!(refused, Err(StoreError::QuotaReached(_))));
    assert!(bench.created(OTHER_TENANT, spec("more")).await.is_ok());
    bench.edit("j0", Change::Delete).await;
    assert!(bench.created(TENANT, spec("more")).await.is_ok());
    assert!(matches!(bench.created(TENANT, spec("still-more")).await, Err(StoreError::QuotaReached(_))));
}

pub async fn one_job_that_is_refused_does_not_stop_the_others(bench: &Bench) {
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

pub async fn an_at_that_has_passed_is_refused_with_the_stores_time(bench: &Bench) {
    let created = bench.created(TENANT, at(s(-61))).await;
    let said = created.as_ref().unwrap_err().to_string();
    assert!(said.contains(&START.to_string()), "{said}");
    assert_eq!(field(created), "schedule.at");
}

pub async fn an_at_that_has_only_just_passed_still_counts(bench: &Bench) {
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

pub async fn a_repeated_request_gives_the_job_that_it_made(bench: &Bench) {
    let first = create_under(bench, TENANT, 1, spec("j"), &key(1)).await.unwrap();
    assert!(!first.replayed);
    bench.clock.set(START.plus(IDEMPOTENCY_KEPT).minus(Span::seconds(1)));
    let again = create_under(bench, TENANT, 2, spec("j"), &key(1)).await.unwrap();
    assert!(again.replayed);
    assert_eq!((again.job.id, again.cursor), (first.job.id, first.cursor));
    assert_eq!(bench.audit().await.len(), 1);
}

pub async fn a_key_used_for_another_job_is_refused(bench: &Bench) {
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

pub async fn a_request_that_was_refused_does_not_use_up_its_key(bench: &Bench) {
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

pub async fn a_home_region_is_kept_until_an_edit_changes_it(bench: &Bench) {
    let at_home = |region: &str| JobSpec { home_region: Some(region.to_owned()), ..spec("j") };
    let home = async || {
        let read = bench.store.get_job(TENANT, &by_name("j")).await.unwrap().job;
        read.spec.home_region.clone()
    };
    bench.create(at_home("eu")).await;
    assert_eq!(home().await.as_deref(), Some("eu"));
    assert!(bench.edit("j", Change::Replace(Box::new(at_home("us")))).await.x.is_some());
    assert_eq!(home().await.as_deref(), Some("us"));
    bench.edit("j", Change::Replace(Box::new(spec("j")))).await;
    assert_eq!(home().await, None);
}
