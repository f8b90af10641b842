//! Tenants: their states, quotas and rules, and what happens to their jobs.

use everytick_domain::{
    edit::Change,
    ids::TenantId,
    job::JobSpec,
    run::State,
    tenant::{Quotas, SUSPENDED_NOTE, TenantState, TenantWork},
    time::Span,
};

use super::{Bench, LIMITS, TENANT, actor, by_name, change, job_id, new_run, overlapping, pause, s, spec};
use crate::{
    AuditFilter, JobRef, NO_RULES, NewTenant, Result, RunFilter, StoreError, TenantChange, TenantJob, TenantRecord,
    TenantRef,
};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_tenants {
    ($open:path) => {
        $crate::conformance_group! { $open, tenants:
            every_installation_has_the_tenant_default,
            a_tenant_is_created_read_listed_and_changed,
            the_name_of_a_tenant_is_taken,
            a_wrong_name_or_quota_is_refused,
            no_tenant_gets_the_id_of_a_removed_one,
            tenant_changes_have_audit_rows_of_the_tenant,
            the_narrower_layer_of_quotas_applies,
            a_quota_of_zero_refuses_the_first,
            a_suspended_tenant_defines_nothing,
            a_suspension_pauses_jobs_and_a_resumption_resumes_exactly_those,
            the_ticks_before_a_suspension_are_recorded_and_none_after_it,
            a_suspension_with_cancel_ends_the_runs,
            a_pause_after_the_tenant_was_resumed_does_nothing,
            a_job_that_was_paused_for_another_reason_stays_paused,
            work_is_done_until_other_work_replaces_it,
            only_a_tenant_that_was_suspended_long_enough_is_deleted,
            the_tenant_default_is_never_deleted,
            a_deletion_removes_everything_of_the_tenant_but_its_audit_rows,
            a_deletion_removes_long_histories_in_batches,
        }
    };
}

fn new(name: &str) -> NewTenant {
    NewTenant { name: name.to_owned(), quotas: Quotas::default(), egress: NO_RULES.to_owned(), shell: false }
}

fn named(name: &str) -> TenantRef {
    TenantRef::Name(name.to_owned())
}

async fn create(bench: &Bench, name: &str) -> TenantRecord {
    bench.store.create_tenant(&actor(), new(name)).await.unwrap()
}

async fn get(bench: &Bench, name: &str) -> TenantRecord {
    bench.store.get_tenant(&named(name)).await.unwrap()
}

async fn suspend(bench: &Bench, name: &str, cancel: bool) -> TenantRecord {
    bench.store.suspend_tenant(&actor(), &named(name), cancel).await.unwrap()
}

async fn resume(bench: &Bench, name: &str) -> TenantRecord {
    bench.store.resume_tenant(&actor(), &named(name)).await.unwrap()
}

async fn pause_job(bench: &Bench, tenant: TenantId, job: &str, cancel: bool) -> TenantJob {
    bench.store.pause_for_tenant(&actor(), tenant, job_id(tenant, job), cancel).await.unwrap()
}

async fn resume_job(bench: &Bench, tenant: TenantId, job: &str) -> TenantJob {
    bench.store.resume_for_tenant(&actor(), tenant, job_id(tenant, job)).await.unwrap()
}

/// The note of the pause of a job; `None` if it is not paused.
async fn note(bench: &Bench, tenant: TenantId, job: &str) -> Option<String> {
    let record = bench.store.get_job(tenant, &by_name(job)).await.unwrap();
    record.job.paused.map(|paused| paused.note.unwrap_or_default())
}

fn is_conflict<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(StoreError::Conflict(_)))
}

fn is_suspended<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(StoreError::TenantSuspended))
}

async fn actions(bench: &Bench, tenant: TenantId) -> Vec<String> {
    let mut rows = bench.store.list_audit(tenant, &AuditFilter::default(), None, 100).await.unwrap().items;
    rows.reverse();
    rows.into_iter().map(|row| row.action).collect()
}

pub async fn every_installation_has_the_tenant_default(bench: &Bench) {
    let default = get(bench, "default").await;
    assert_eq!((default.id, default.state, default.shell), (TENANT, TenantState::Active, true));
    assert_eq!(bench.store.get_tenant(&TenantRef::Id(TENANT)).await.unwrap(), default);
    let missing = bench.store.get_tenant(&named("other")).await;
    assert!(matches!(missing, Err(StoreError::NotFound("tenant"))), "{missing:?}");
}

pub async fn a_tenant_is_created_read_listed_and_changed(bench: &Bench) {
    bench.go(5);
    let quotas = Quotas { jobs: Some(2), ..Quotas::default() };
    let asked = NewTenant { quotas, egress: "{\"https_only\":true}".to_owned(), shell: true, ..new("team-b") };
    let made = bench.store.create_tenant(&actor(), asked.clone()).await.unwrap();
    assert!(made.id != TENANT && made.state == TenantState::Active && made.shell);
    assert_eq!((made.created_at, made.suspended_at, made.work, made.jobs), (Some(s(5)), None, None, 0));
    assert_eq!((made.quotas, &made.egress, made.own_egress.as_str()), (quotas, &asked.egress, NO_RULES));
    assert_eq!(get(bench, "team-b").await, made);
    let second = create(bench, "team-a").await;
    assert!(second.id > made.id && !second.shell);
    let page = bench.store.list_tenants(None, 2).await.unwrap();
    let names = |items: Vec<TenantRecord>| items.into_iter().map(|tenant| tenant.name).collect::<Vec<_>>();
    assert_eq!((names(page.items), page.next.as_deref()), (vec!["default".into(), "team-a".into()], Some("team-a")));
    let rest = bench.store.list_tenants(page.next.as_deref(), 2).await.unwrap();
    assert_eq!((names(rest.items), rest.next), (vec!["team-b".to_owned()], None));
    let own = Quotas { tokens: Some(1), ..Quotas::default() };
    let change = TenantChange { own_quotas: Some(own), shell: Some(false), ..TenantChange::default() };
    let changed = bench.store.update_tenant(&actor(), &named("team-b"), change).await.unwrap();
    assert_eq!(changed, TenantRecord { own_quotas: own, shell: false, ..made });
    assert_eq!(get(bench, "team-b").await, changed);
    bench.created(changed.id, spec("a")).await.unwrap();
    assert_eq!(get(bench, "team-b").await.jobs, 1);
}

pub async fn the_name_of_a_tenant_is_taken(bench: &Bench) {
    create(bench, "a").await;
    for name in ["a", "default"] {
        assert!(is_conflict(&bench.store.create_tenant(&actor(), new(name)).await), "{name}");
    }
}

pub async fn a_wrong_name_or_quota_is_refused(bench: &Bench) {
    let quotas = Quotas { min_interval: Some(Span::millis(1)), ..Quotas::default() };
    for (asked, field) in [(new("a b"), "name"), (NewTenant { quotas, ..new("a") }, "quotas.min_interval")] {
        match bench.store.create_tenant(&actor(), asked).await {
            Err(StoreError::Invalid(wrong)) => assert_eq!(wrong[0].field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    let change = TenantChange { own_quotas: Some(quotas), ..TenantChange::default() };
    let refused = bench.store.update_tenant(&actor(), &named("default"), change).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
}

pub async fn no_tenant_gets_the_id_of_a_removed_one(bench: &Bench) {
    let first = create(bench, "a").await;
    delete_at_once(bench, "a").await;
    assert!(bench.store.remove_tenant_rows(&actor(), first.id, 10).await.unwrap());
    let second = create(bench, "a").await;
    assert!(second.id > first.id, "{second:?}");
    // A request that the removal has overtaken.
    let job = crate::NewJob { id: job_id(first.id, "late"), spec: spec("late") };
    let late = bench.store.create_jobs(first.id, &actor(), vec![job], None).await;
    assert!(matches!(late, Err(StoreError::NotFound("tenant"))), "{late:?}");
}

pub async fn tenant_changes_have_audit_rows_of_the_tenant(bench: &Bench) {
    let made = create(bench, "a").await;
    let change = TenantChange { shell: Some(true), ..TenantChange::default() };
    bench.store.update_tenant(&actor(), &named("a"), change.clone()).await.unwrap();
    // Changes nothing.
    bench.store.update_tenant(&actor(), &named("a"), change).await.unwrap();
    suspend(bench, "a", false).await;
    suspend(bench, "a", false).await;
    resume(bench, "a").await;
    resume(bench, "a").await;
    suspend(bench, "a", true).await;
    bench.store.delete_tenant(&actor(), &named("a"), true).await.unwrap();
    let expected =
        ["create_tenant", "update_tenant", "suspend_tenant", "resume_tenant", "suspend_tenant", "delete_tenant"];
    assert_eq!(actions(bench, made.id).await, expected);
    assert_eq!(actions(bench, TENANT).await, [""; 0]);
    let rows = bench.store.list_audit(made.id, &AuditFilter::default(), None, 1).await.unwrap().items;
    assert_eq!((rows[0].subject.as_str(), rows[0].actor.as_str()), ("tenant/a", "tester"));
    assert!(rows[0].detail.contains("\"state\":\"deleting\""), "{}", rows[0].detail);
}

pub async fn the_narrower_layer_of_quotas_applies(bench: &Bench) {
    let tenant = create(bench, "a").await;
    let set = async |operator: Option<u64>, own: Option<u64>| {
        let quotas = |jobs| Some(Quotas { jobs, ..Quotas::default() });
        let change = TenantChange { quotas: quotas(operator), own_quotas: quotas(own), ..TenantChange::default() };
        bench.store.update_tenant(&actor(), &TenantRef::Id(tenant.id), change).await.unwrap();
    };
    let mut made = 0;
    let mut up_to = async |max: u64| {
        loop {
            match bench.created(tenant.id, spec(&format!("j{made}"))).await {
                Ok(_) => made += 1,
                Err(StoreError::QuotaFull { what: "jobs", max: told }) => {
                    assert_eq!((made, told), (max, max));
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    set(Some(2), None).await;
    up_to(2).await;
    set(Some(5), Some(3)).await;
    up_to(3).await;
    set(Some(4), Some(9)).await;
    up_to(4).await;
    // More than the default of the installation.
    set(Some(LIMITS.jobs_per_tenant_max + 2), None).await;
    up_to(LIMITS.jobs_per_tenant_max + 2).await;
    // Another tenant has its own quota.
    bench.create(spec("j0")).await;
}

pub async fn a_quota_of_zero_refuses_the_first(bench: &Bench) {
    let none = Quotas { jobs: Some(0), calendars: Some(0), secrets: Some(0), tokens: Some(0), min_interval: None };
    let tenant = bench.store.create_tenant(&actor(), NewTenant { quotas: none, ..new("a") }).await.unwrap();
    let full = |answer: Result<()>, expected: &str| match answer {
        Err(StoreError::QuotaFull { what, max: 0 }) => assert_eq!(what, expected),
        other => panic!("{expected}: {other:?}"),
    };
    full(bench.created(tenant.id, spec("a")).await.map(drop), "jobs");
    full(super::calendars::put_in(bench, tenant.id, "c").await.map(drop), "calendars");
    full(super::secrets::put_in(bench, tenant.id, "s").await.map(drop), "secrets");
    full(super::tokens::create_in(bench, tenant.id, 1).await.map(drop), "tokens");
}

pub async fn a_suspended_tenant_defines_nothing(bench: &Bench) {
    let tenant = create(bench, "a").await;
    bench.created(tenant.id, spec("a")).await.unwrap();
    bench.store.edit_job(tenant.id, &actor(), change("a", pause())).await.unwrap();
    suspend(bench, "a", false).await;
    assert!(is_suspended(&created(bench, tenant.id, spec("b")).await));
    let replaced = Change::Replace(Box::new(JobSpec { description: "new".to_owned(), ..spec("a") }));
    for refused in [replaced, Change::Resume] {
        let answer = bench.store.edit_job(tenant.id, &actor(), change("a", refused)).await;
        assert!(is_suspended(&answer), "{answer:?}");
    }
    resume(bench, "a").await;
    bench.store.edit_job(tenant.id, &actor(), change("a", Change::Resume)).await.unwrap();
    bench.create(spec("a")).await;
}

/// As [`Bench::created`], for a request that is refused as a whole.
async fn created(bench: &Bench, tenant: TenantId, spec: JobSpec) -> Result<()> {
    let job = crate::NewJob { id: job_id(tenant, &spec.name), spec };
    bench.store.create_jobs(tenant, &actor(), vec![job], None).await.map(drop)
}

pub async fn a_suspension_pauses_jobs_and_a_resumption_resumes_exactly_those(bench: &Bench) {
    let tenant = create(bench, "a").await.id;
    for name in ["one", "two", "three"] {
        bench.created(tenant, spec(name)).await.unwrap();
        bench.create(spec(name)).await;
    }
    let own = Change::Pause { note: Some("by its owner".to_owned()) };
    bench.store.edit_job(tenant, &actor(), change("two", own)).await.unwrap();
    let suspended = suspend(bench, "a", false).await;
    assert_eq!((suspended.state, suspended.work), (TenantState::Suspended, Some(TenantWork::Pause)));
    let jobs = bench.store.tenant_jobs(tenant, "", 2).await.unwrap();
    assert_eq!(jobs, [(job_id(tenant, "one"), "one".to_owned()), (job_id(tenant, "three"), "three".to_owned())]);
    let rest = bench.store.tenant_jobs(tenant, "three", 2).await.unwrap();
    assert_eq!(rest, [(job_id(tenant, "two"), "two".to_owned())]);
    for (name, changed) in [("one", true), ("two", false), ("three", true), ("one", false)] {
        assert_eq!(pause_job(bench, tenant, name, false).await.changed, changed, "{name}");
    }
    let suspended_note = Some(SUSPENDED_NOTE.to_owned());
    assert_eq!(note(bench, tenant, "one").await, suspended_note);
    assert_eq!(note(bench, tenant, "two").await.as_deref(), Some("by its owner"));
    assert_eq!(note(bench, TENANT, "one").await, None, "a job of another tenant");
    let mut noted = vec![job_id(tenant, "one"), job_id(tenant, "three")];
    noted.sort();
    assert_eq!(bench.store.noted_jobs(tenant, 10).await.unwrap(), noted);
    resume(bench, "a").await;
    assert_eq!(note(bench, tenant, "one").await, suspended_note, "until its turn comes");
    for (name, changed) in [("one", true), ("two", false), ("three", true), ("one", false)] {
        assert_eq!(resume_job(bench, tenant, name).await.changed, changed, "{name}");
    }
    assert_eq!((note(bench, tenant, "one").await, note(bench, tenant, "three").await), (None, None));
    assert_eq!(note(bench, tenant, "two").await.as_deref(), Some("by its owner"));
    assert_eq!(bench.store.noted_jobs(tenant, 10).await.unwrap(), []);
}

pub async fn the_ticks_before_a_suspension_are_recorded_and_none_after_it(bench: &Bench) {
    let tenant = create(bench, "a").await.id;
    bench.created(tenant, overlapping("a")).await.unwrap();
    suspend(bench, "a", false).await;
    // The owner of the job has not recorded the ticks at 10, 20 and 30 s yet.
    bench.go(35);
    assert!(pause_job(bench, tenant, "a", false).await.changed);
    let ticks = async || {
        let filter = RunFilter { job: Some(job_id(tenant, "a")), ..RunFilter::default() };
        let runs = bench.store.list_runs(tenant, &filter, None, 100).await.unwrap().items;
        let mut ticks: Vec<_> = runs.into_iter().map(|run| run.scheduled_at).collect();
        ticks.reverse();
        ticks
    };
    let due = ticks().await;
    assert_eq!(due.last(), Some(&s(30)), "{due:?}");
    bench.go(95);
    resume(bench, "a").await;
    assert!(resume_job(bench, tenant, "a").await.changed);
    assert_eq!(ticks().await, due, "the suspended time has no ticks");
    let cursor = bench.store.get_job(tenant, &by_name("a")).await.unwrap().cursor;
    assert_eq!(cursor, Some(s(100)));
}

pub async fn a_suspension_with_cancel_ends_the_runs(bench: &Bench) {
    let lease = bench.join("n1", 1).await;
    let tenant = create(bench, "a").await.id;
    for name in ["waits", "paused"] {
        bench.created(tenant, overlapping(name)).await.unwrap();
    }
    let waits = bench.store.trigger(tenant, &actor(), new_run("waits", "1")).await.unwrap().id;
    let claimed = bench.store.trigger(tenant, &actor(), new_run("paused", "1")).await.unwrap().id;
    bench.claim(&lease, claimed).await;
    bench.store.edit_job(tenant, &actor(), change("paused", pause())).await.unwrap();
    assert_eq!(suspend(bench, "a", true).await.work, Some(TenantWork::PauseAndCancel));
    assert_eq!(pause_job(bench, tenant, "waits", true).await.cancelled, []);
    assert_eq!(pause_job(bench, tenant, "paused", true).await.cancelled, [claimed], "though the job was paused before");
    for run in [waits, claimed] {
        assert_eq!(bench.store.get_run(tenant, run).await.unwrap().state, State::Cancelled);
    }
    assert_eq!(bench.store.noted_jobs(tenant, 10).await.unwrap(), [job_id(tenant, "waits")]);
}

pub async fn a_pause_after_the_tenant_was_resumed_does_nothing(bench: &Bench) {
    let tenant = create(bench, "a").await.id;
    bench.created(tenant, spec("a")).await.unwrap();
    suspend(bench, "a", false).await;
    resume(bench, "a").await;
    assert_eq!(pause_job(bench, tenant, "a", true).await, TenantJob::default());
    assert_eq!(note(bench, tenant, "a").await, None);
    suspend(bench, "a", false).await;
    assert!(pause_job(bench, tenant, "a", false).await.changed);
    assert_eq!(resume_job(bench, tenant, "a").await, TenantJob::default(), "while the tenant is suspended");
    assert_eq!(note(bench, tenant, "a").await.as_deref(), Some(SUSPENDED_NOTE));
}

pub async fn a_job_that_was_paused_for_another_reason_stays_paused(bench: &Bench) {
    let tenant = create(bench, "a").await.id;
    bench.created(tenant, spec("a")).await.unwrap();
    suspend(bench, "a", false).await;
    pause_job(bench, tenant, "a", false).await;
    resume(bench, "a").await;
    bench.store.edit_job(tenant, &actor(), change("a", Change::Resume)).await.unwrap();
    bench.store.edit_job(tenant, &actor(), change("a", Change::Pause { note: None })).await.unwrap();
    assert_eq!(resume_job(bench, tenant, "a").await, TenantJob::default());
    assert_eq!(note(bench, tenant, "a").await.as_deref(), Some(""));
    assert_eq!(bench.store.noted_jobs(tenant, 10).await.unwrap(), []);
}

pub async fn work_is_done_until_other_work_replaces_it(bench: &Bench) {
    let tenant = create(bench, "a").await.id;
    let working = async || {
        let found = bench.store.tenants_with_work(10).await.unwrap();
        found.into_iter().map(|tenant| (tenant.name, tenant.work.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(working().await, []);
    suspend(bench, "a", false).await;
    assert_eq!(working().await, [("a".to_owned(), TenantWork::Pause)]);
    resume(bench, "a").await;
    bench.store.end_tenant_work(tenant, TenantWork::Pause).await.unwrap();
    assert_eq!(working().await, [("a".to_owned(), TenantWork::Resume)], "the end of earlier work changes nothing");
    bench.store.end_tenant_work(tenant, TenantWork::Resume).await.unwrap();
    assert_eq!(working().await, []);
    assert_eq!(get(bench, "a").await.state, TenantState::Active);
}

/// Suspends a tenant and deletes it.
async fn delete_at_once(bench: &Bench, name: &str) {
    suspend(bench, name, false).await;
    bench.store.delete_tenant(&actor(), &named(name), true).await.unwrap();
}

pub async fn only_a_tenant_that_was_suspended_long_enough_is_deleted(bench: &Bench) {
    create(bench, "a").await;
    let try_it = async |force| bench.store.delete_tenant(&actor(), &named("a"), force).await;
    assert!(is_conflict(&try_it(true).await), "it is not suspended");
    suspend(bench, "a", false).await;
    bench.go(7 * 86_400 - 1);
    // A second suspension does not count again.
    suspend(bench, "a", true).await;
    assert!(is_conflict(&try_it(false).await));
    bench.go(7 * 86_400);
    let deleted = try_it(false).await.unwrap();
    assert_eq!((deleted.state, deleted.work), (TenantState::Deleting, Some(TenantWork::Delete)));
    assert!(is_conflict(&bench.store.resume_tenant(&actor(), &named("a")).await), "it is final");
    assert!(is_conflict(&bench.store.suspend_tenant(&actor(), &named("a"), true).await));
    create(bench, "b").await;
    suspend(bench, "b", false).await;
    assert!(bench.store.delete_tenant(&actor(), &named("b"), true).await.is_ok(), "with force at once");
}

pub async fn the_tenant_default_is_never_deleted(bench: &Bench) {
    suspend(bench, "default", false).await;
    assert!(is_conflict(&bench.store.delete_tenant(&actor(), &named("default"), true).await));
    resume(bench, "default").await;
}

/// Deletes the jobs of a tenant as the engine does. Returns the number of steps that removed rows of jobs.
async fn remove_jobs(bench: &Bench, tenant: TenantId, limit: usize) -> usize {
    let mut steps = 0;
    for _ in 0..3 {
        for (job, _) in bench.store.tenant_jobs(tenant, "", 100).await.unwrap() {
            match bench.store.delete_for_tenant(&actor(), tenant, job).await {
                Ok(_) | Err(StoreError::InUse { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    for job in bench.store.noted_jobs(tenant, 100).await.unwrap() {
        steps += 1;
        while !bench.store.remove_tenant_job(tenant, job, limit).await.unwrap() {
            steps += 1;
        }
    }
    steps
}

pub async fn a_deletion_removes_everything_of_the_tenant_but_its_audit_rows(bench: &Bench) {
    let lease = bench.join("n1", 1).await;
    let tenant = create(bench, "a").await.id;
    for owner in [TENANT, tenant] {
        super::calendars::put_in(bench, owner, "c").await.unwrap();
        super::secrets::put_in(bench, owner, "s").await.unwrap();
        super::tokens::create_in(bench, owner, u8::try_from(owner.raw()).unwrap()).await.unwrap();
        let parent = JobSpec { schedule: None, ..overlapping("parent") };
        bench.created(owner, parent).await.unwrap();
        bench.created(owner, super::flows::after("child", &["parent"])).await.unwrap();
        bench.created(owner, overlapping("ticks")).await.unwrap();
        for job in ["parent", "ticks"] {
            let run = bench.store.trigger(owner, &actor(), new_run(job, "1")).await.unwrap().id;
            let claim = bench.claim(&lease, run).await;
            bench.settle(&claim, everytick_domain::run::Verdict::Failed).await;
        }
        bench.store.trigger(owner, &actor(), new_run("ticks", "2")).await.unwrap();
    }
    delete_at_once(bench, "a").await;
    assert!(!bench.store.remove_tenant_rows(&actor(), tenant, 100).await.unwrap(), "its jobs come first");
    let job = job_id(tenant, "ticks");
    assert!(bench.store.remove_tenant_job(tenant, job, 100).await.unwrap(), "a job that is not noted");
    assert_eq!(bench.store.get_job(tenant, &JobRef::Id(job)).await.unwrap().job.id, job);
    remove_jobs(bench, tenant, 100).await;
    for _ in 0..3 {
        bench.store.remove_tenant_rows(&actor(), tenant, 100).await.unwrap();
    }
    assert!(matches!(bench.store.get_tenant(&named("a")).await, Err(StoreError::NotFound(_))));
    let runs = async |owner| bench.store.list_runs(owner, &RunFilter::default(), None, 100).await.unwrap().items.len();
    let secrets = async |owner| bench.store.list_secrets(owner, None, 10).await.unwrap().items.len();
    let calendars = async |owner| bench.store.list_calendars(owner, None, 10).await.unwrap().items.len();
    let tokens = async |owner| bench.store.list_tokens(Some(owner), None, 10).await.unwrap().items.len();
    for (owner, rows) in [(tenant, 0), (TENANT, 1)] {
        assert_eq!((secrets(owner).await, calendars(owner).await, tokens(owner).await), (rows, rows, rows));
        assert_eq!(bench.store.tenant_jobs(owner, "", 10).await.unwrap().len(), rows * 3);
    }
    assert_eq!((runs(tenant).await, runs(TENANT).await), (0, 3));
    assert_eq!(bench.store.load_jobs(&[job]).await.unwrap().len(), 0, "also the row of the deleted job");
    let trail = actions(bench, tenant).await;
    assert!(trail.first().is_some_and(|action| action == "create_tenant"), "{trail:?}");
    assert_eq!(trail.last().map(String::as_str), Some("remove_tenant"));
    assert!(bench.store.find_token(&super::tokens::hash_of(2)).await.unwrap().0.is_none());
}

pub async fn a_deletion_removes_long_histories_in_batches(bench: &Bench) {
    let tenant = create(bench, "a").await.id;
    bench.created(tenant, overlapping("a")).await.unwrap();
    bench.go(65);
    delete_at_once(bench, "a").await;
    // Six ticks are recorded with the deletion.
    let steps = remove_jobs(bench, tenant, 2).await;
    assert!(steps >= 2, "{steps}");
    assert_eq!(bench.store.noted_jobs(tenant, 10).await.unwrap(), []);
}
