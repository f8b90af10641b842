//! Nothing crosses tenants (I20): two tenants own equal names, and one of them uses the ids and names of the other with every
//! method that users reach.

use std::collections::BTreeSet;

use everytick_domain::{
    backfill::{Order, Stretch},
    edit::Change,
    explain::Question,
    ids::{BackfillId, Fence, IdPrefix, JobId, RunId, TenantId},
    job::JobSpec,
    output::LogPart,
    queue::QueueLimits,
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use uuid::Uuid;

use super::{Bench, START, TENANT, actor, by_name, job_id, overlapping, pause, s};
use crate::{
    AuditFilter, ClaimBeat, ClaimQueue, EditJob, FlowFilter, IdempotencyKey, JobFilter, JobRef, Lease, NO_RULES,
    NewBackfill, NewRun, NewTenant, Redrive, RerunFlow, RunFilter, StoreError, Success,
};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_isolation {
    ($open:path) => {
        $crate::conformance_group! { $open, isolation:
            ids_of_another_tenant_are_unknown,
            equal_names_of_two_tenants_are_different_things,
            lists_of_one_tenant_have_nothing_of_another,
            a_worker_of_one_tenant_gets_no_run_of_another,
            a_claim_of_another_tenant_cannot_be_worked_on,
            a_repeated_key_of_another_tenant_is_a_new_request,
            names_in_definitions_resolve_inside_the_tenant,
        }
    };
}

/// A text that every field with a free text of the other tenant contains.
const CANARY: &str = "canary-of-the-first-tenant";

/// What the first tenant has. Ids that the second one may know.
struct Owned {
    other: TenantId,
    lease: Lease,
    job: JobId,
    queue_job: JobId,
    /// Failed, with an attempt.
    failed: RunId,
    waits: RunId,
    /// Claimed by a worker.
    claimed: (RunId, Fence),
    flow: RunId,
    backfill: BackfillId,
}

fn canary(name: &str) -> JobSpec {
    let payload = Some(format!("\"{CANARY}\""));
    JobSpec { description: CANARY.to_owned(), payload, ..overlapping(name) }
}

fn queued(name: &str, queue: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: queue.to_owned() }), ..canary(name) }
}

fn ask_of(tenant: TenantId, queue: &str) -> ClaimQueue {
    let (queue, worker) = (queue.to_owned(), CANARY.to_owned());
    ClaimQueue { tenant, queue, worker, limit: 10, lease: Span::seconds(30) }
}

fn run_of(job: JobRef, key: &str) -> NewRun {
    NewRun { job, key: key.as_bytes().to_vec(), payload: None, force: false, idempotency: None }
}

/// The first tenant gets a job, a queue, runs in every state, a flow, a backfill, a calendar and a secret.
async fn owned(bench: &Bench) -> Owned {
    let new = NewTenant { name: "b".to_owned(), quotas: Default::default(), egress: NO_RULES.to_owned(), shell: false };
    let other = bench.store.create_tenant(&actor(), new).await.unwrap().id;
    let lease = bench.join("n1", 1).await;
    let trigger =
        async |job: &str, key: &str| bench.store.trigger(TENANT, &actor(), run_of(by_name(job), key)).await.unwrap().id;
    let job = bench.create(canary("a")).await.id;
    bench.create(JobSpec { payload: None, ..super::flows::after("child", &["a"]) }).await;
    let queue_job = bench.create(queued("q", "mail")).await.id;
    super::calendars::put_in(bench, TENANT, "holidays").await.unwrap();
    super::secrets::put_in(bench, TENANT, "key").await.unwrap();
    let failed = trigger("a", "1").await;
    let claim = bench.claim(&lease, failed).await;
    bench.settle(&claim, Verdict::Failed).await;
    let flow = trigger("a", "2").await;
    let claim = bench.claim(&lease, flow).await;
    bench.settle(&claim, Verdict::Succeeded).await;
    bench.store.advance_flow(flow).await.unwrap();
    let waits = trigger("a", "3").await;
    trigger("q", "1").await;
    let claims = bench.store.claim_queue(&ask_of(TENANT, "mail")).await.unwrap().claims;
    let claimed = (claims[0].run.id, claims[0].run.fence);
    let part = LogPart::from(CANARY);
    assert!(bench.store.log_claim(TENANT, claimed.0, claimed.1, part).await.unwrap());
    bench.go(40);
    let backfill = BackfillId::new(s(40), [7; 10]);
    let ask = backfill_of(backfill, by_name("a"));
    bench.store.create_backfill(TENANT, &actor(), ask).await.unwrap();
    Owned { other, lease, job, queue_job, failed, waits, claimed, flow, backfill }
}

fn backfill_of(id: BackfillId, job: JobRef) -> NewBackfill {
    let stretch = Stretch { from: s(5), to: s(25), order: Order::Oldest };
    NewBackfill { id, job, stretch, rate: None, payload: None, kept: Span::days(90), idempotency: None }
}

/// The answer of a request for something unknown.
#[track_caller]
fn unknown<T: std::fmt::Debug>(what: &str, answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::NotFound(_))), "{what}: {answer:?}");
}

pub async fn ids_of_another_tenant_are_unknown(bench: &Bench) {
    let a = owned(bench).await;
    let (store, b, by) = (&bench.store, a.other, actor());
    let job = JobRef::Id(a.job);
    for job in [job.clone(), by_name("a")] {
        unknown("get_job", store.get_job(b, &job).await);
        unknown("cancel_job", store.cancel_job(b, &by, &job).await);
        unknown("trigger", store.trigger(b, &by, run_of(job.clone(), "x")).await);
        let kept = Span::days(90);
        unknown("load_facts", store.load_facts(b, &job, Question::default(), kept).await);
        unknown(
            "create_backfill",
            store.create_backfill(b, &by, backfill_of(BackfillId::new(s(40), [8; 10]), job.clone())).await,
        );
        unknown("preview", store.preview_backfill(b, &backfill_of(a.backfill, job.clone())).await);
        for change in [pause(), Change::Resume, Change::Delete, Change::Replace(Box::new(canary("a")))] {
            let edit = EditJob { job: job.clone(), change, if_match: None, cancel: true };
            unknown("edit_job", store.edit_job(b, &by, edit).await);
        }
        let ask = Redrive { job, from: START, to: None, limit: 10, dry_run: false };
        unknown("redrive", store.redrive(b, &by, &ask).await);
    }
    for run in [a.failed, a.waits, a.claimed.0, a.flow] {
        unknown("get_run", store.get_run(b, run).await);
        unknown("list_attempts", store.list_attempts(b, run).await);
        unknown("load_run_facts", store.load_run_facts(b, run).await);
        unknown("cancel_run", store.cancel_run(b, &by, run).await);
        unknown("get_flow", store.get_flow(b, run).await);
        unknown("cancel_flow", store.cancel_flow(b, &by, run).await);
        let again = RerunFlow { flow: run, from: Vec::new(), key: b"k".to_vec(), idempotency: None };
        unknown("rerun_flow", store.rerun_flow(b, &by, again).await);
        assert_eq!(store.claim_log(b, run).await.ok().flatten(), None, "claim_log");
    }
    unknown("get_backfill", store.get_backfill(b, a.backfill).await);
    unknown("cancel_backfill", store.cancel_backfill(b, &by, a.backfill).await);
    unknown("get_calendar", store.get_calendar(b, "holidays").await);
    unknown("delete_calendar", store.delete_calendar(b, &by, "holidays", None).await);
    unknown("get_secret", store.get_secret(b, "key").await);
    unknown("delete_secret", store.delete_secret(b, &by, "key", None, true).await);
    assert!(store.load_secrets(b, &["key".to_owned()]).await.unwrap().0.is_empty());
    assert!(store.load_calendars(b, &["holidays".to_owned()]).await.unwrap().is_empty());
    // Nothing of the first tenant has changed.
    assert_eq!(store.get_run(TENANT, a.waits).await.unwrap().state, State::Waiting);
    assert_eq!(store.get_run(TENANT, a.claimed.0).await.unwrap().state, State::Claimed);
    let record = store.get_job(TENANT, &job).await.unwrap();
    assert!(record.job.paused.is_none() && record.job.version == everytick_domain::ids::Version::from_raw(1));
    assert!(store.list_audit(b, &AuditFilter::default(), None, 100).await.unwrap().items.len() == 1, "its creation");
}

pub async fn equal_names_of_two_tenants_are_different_things(bench: &Bench) {
    let a = owned(bench).await;
    let (store, b) = (&bench.store, a.other);
    let own = bench.created(b, overlapping("a")).await.unwrap().job.id;
    assert_eq!(own, job_id(b, "a"));
    super::calendars::put_in(bench, b, "holidays").await.unwrap();
    super::secrets::put_in(bench, b, "key").await.unwrap();
    let edit = EditJob { job: by_name("a"), change: Change::Delete, if_match: None, cancel: true };
    store.edit_job(b, &actor(), edit).await.unwrap();
    store.delete_calendar(b, &actor(), "holidays", None).await.unwrap();
    store.delete_secret(b, &actor(), "key", None, false).await.unwrap();
    store.set_queue(b, &actor(), "mail", QueueLimits { concurrency: Some(1), rate: None }).await.unwrap();
    assert_eq!(store.get_job(TENANT, &by_name("a")).await.unwrap().job.id, a.job);
    assert_eq!(store.get_run(TENANT, a.waits).await.unwrap().state, State::Waiting);
    assert!(store.get_calendar(TENANT, "holidays").await.is_ok() && store.get_secret(TENANT, "key").await.is_ok());
    let queues = store.list_queues(TENANT, None, 10).await.unwrap().items;
    assert_eq!(queues.iter().map(|queue| queue.limits.concurrency).collect::<Vec<_>>(), [None]);
    // The name of a deleted job of another tenant explains nothing either.
    let found = store.load_facts(b, &by_name("child"), Question::default(), Span::days(90)).await;
    unknown("load_facts", found);
}

pub async fn lists_of_one_tenant_have_nothing_of_another(bench: &Bench) {
    let a = owned(bench).await;
    let (store, b) = (&bench.store, a.other);
    assert_eq!(store.list_jobs(b, &JobFilter::default(), None, 100).await.unwrap().items.len(), 0);
    let searched = JobFilter { q: Some(CANARY.to_owned()), ..JobFilter::default() };
    assert_eq!(store.list_jobs(b, &searched, None, 100).await.unwrap().items.len(), 0);
    assert_eq!(store.list_jobs(TENANT, &searched, None, 100).await.unwrap().items.len(), 2);
    let runs = [
        RunFilter::default(),
        RunFilter { job: Some(a.job), ..RunFilter::default() },
        RunFilter { job: Some(a.queue_job), ..RunFilter::default() },
        RunFilter { states: vec![State::Failed], ..RunFilter::default() },
        RunFilter { states: vec![State::Failed], job: Some(a.job), ..RunFilter::default() },
        RunFilter { states: vec![State::Waiting], ..RunFilter::default() },
        RunFilter { flow: Some(a.flow), ..RunFilter::default() },
        RunFilter { ids: a.failed.to_string()[..8].parse().ok(), ..RunFilter::default() },
    ];
    for filter in &runs {
        assert_ne!(store.list_runs(TENANT, filter, None, 100).await.unwrap().items.len(), 0, "{filter:?}");
        let page = store.list_runs(b, filter, None, 100).await.unwrap();
        assert_eq!(page.items.len(), 0, "{filter:?}");
        let known: BTreeSet<RunId> = [a.failed, a.waits, a.claimed.0, a.flow].into();
        assert!(
            page.next.is_none_or(|next| !known.contains(&next)),
            "the position of a page is no id of another tenant"
        );
    }
    assert_eq!(store.list_flows(TENANT, &FlowFilter::default(), None, 10).await.unwrap().items.len(), 2);
    assert_eq!(store.list_flows(b, &FlowFilter::default(), None, 10).await.unwrap().items.len(), 0);
    assert_eq!(store.list_backfills(TENANT, a.job, None, 10).await.unwrap().items.len(), 1);
    assert_eq!(store.list_backfills(b, a.job, None, 10).await.unwrap().items.len(), 0);
    assert_eq!(store.list_calendars(b, None, 10).await.unwrap().items.len(), 0);
    assert_eq!(store.list_secrets(b, None, 10).await.unwrap().items.len(), 0);
    assert_eq!(store.list_queues(b, None, 10).await.unwrap().items.len(), 0);
    let short = |id: Uuid| id.to_string()[..8].parse::<IdPrefix>().unwrap();
    assert_eq!(store.find_jobs(TENANT, short(a.job.uuid()), 10).await.unwrap().len(), 1);
    assert_eq!(store.find_jobs(b, short(a.job.uuid()), 10).await.unwrap(), []);
    assert_eq!(store.find_backfills(TENANT, short(a.backfill.uuid()), 10).await.unwrap().len(), 1);
    assert_eq!(store.find_backfills(b, short(a.backfill.uuid()), 10).await.unwrap(), []);
    let trail = async |filter: AuditFilter| store.list_audit(b, &filter, None, 100).await.unwrap().items.len();
    assert_eq!(trail(AuditFilter { actor: Some("tester".to_owned()), ..AuditFilter::default() }).await, 1);
    assert_eq!(trail(AuditFilter { action: Some("trigger".to_owned()), ..AuditFilter::default() }).await, 0);
    assert_eq!(trail(AuditFilter { subjects: vec![a.job.to_string()], ..AuditFilter::default() }).await, 0);
    assert!(bench.store.now().await.unwrap() > START);
}

pub async fn a_worker_of_one_tenant_gets_no_run_of_another(bench: &Bench) {
    let a = owned(bench).await;
    let store = &bench.store;
    let trigger = run_of(by_name("q"), "2");
    let due = store.trigger(TENANT, &actor(), trigger).await.unwrap().id;
    assert_eq!(store.claim_queue(&ask_of(a.other, "mail")).await.unwrap().claims.len(), 0);
    let look = store.look_at_queues(&[(a.other, "mail".to_owned())]).await.unwrap();
    assert_eq!((look.due, look.next_due), (vec![], None));
    assert!(!store.note_asked(a.other, "mail", CANARY).await.unwrap(), "no job of this tenant uses the queue");
    bench.created(a.other, queued("q", "mail")).await.unwrap();
    let own = store.trigger(a.other, &actor(), run_of(by_name("q"), "2")).await.unwrap().id;
    let claimed = async |tenant| {
        let claims = store.claim_queue(&ask_of(tenant, "mail")).await.unwrap().claims;
        claims.into_iter().map(|claim| claim.run.id).collect::<Vec<_>>()
    };
    assert_eq!((claimed(a.other).await, claimed(TENANT).await), (vec![own], vec![due]));
    assert_eq!(bench.due(&a.lease).await.iter().filter(|run| **run == own).count(), 0);
}

pub async fn a_claim_of_another_tenant_cannot_be_worked_on(bench: &Bench) {
    let a = owned(bench).await;
    let (store, b, (run, fence)) = (&bench.store, a.other, a.claimed);
    let until = async || {
        let overdue = store.load_overdue_claims(Span::millis(0), 10).await.unwrap();
        overdue.iter().any(|claim| claim.claim.run.id == run)
    };
    let beat = store.beat_claim(b, run, fence, Span::seconds(90)).await;
    assert!(!matches!(beat, Ok(ClaimBeat::Extended { .. })), "{beat:?}");
    assert!(until().await, "the lease of 30 s was not extended");
    let part = LogPart::from("forged");
    assert!(!matches!(store.log_claim(b, run, fence, part).await, Ok(true)));
    assert_eq!(store.load_claims(b, &[run]).await.unwrap().len(), 0);
    let done = Success { run, fence, output: Some("forged".to_owned()) };
    assert_eq!(store.succeed(b, &[done]).await.unwrap(), [None]);
    assert_eq!(store.get_run(TENANT, run).await.unwrap().state, State::Claimed);
    assert_eq!(store.claim_log(TENANT, run).await.unwrap().as_deref(), Some(CANARY));
    assert!(matches!(store.beat_claim(TENANT, run, fence, Span::seconds(90)).await, Ok(ClaimBeat::Extended { .. })));
}

pub async fn a_repeated_key_of_another_tenant_is_a_new_request(bench: &Bench) {
    let a = owned(bench).await;
    bench.created(a.other, canary("a")).await.unwrap();
    let key = IdempotencyKey { key: "k".to_owned(), fingerprint: [1; 32] };
    let ask = NewRun { idempotency: Some(key), ..run_of(by_name("a"), "k") };
    let first = bench.store.trigger(TENANT, &actor(), ask.clone()).await.unwrap();
    let second = bench.store.trigger(a.other, &actor(), ask.clone()).await.unwrap();
    assert_eq!((first.job, second.job), (a.job, job_id(a.other, "a")));
    assert_eq!(bench.store.trigger(a.other, &actor(), ask).await.unwrap().id, second.id);
}

pub async fn names_in_definitions_resolve_inside_the_tenant(bench: &Bench) {
    let a = owned(bench).await;
    let refused = bench.created(a.other, super::flows::after("b", &["a"])).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "depends_on: {refused:?}");
    let mut excluding = overlapping("b");
    excluding.schedule.as_mut().unwrap().exclude = vec!["holidays".to_owned()];
    let refused = bench.created(a.other, excluding.clone()).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "exclude: {refused:?}");
    let refused = bench.created(a.other, super::secrets::using("b", "key", "api.example.org")).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "secrets: {refused:?}");
    bench.create(excluding).await;
}
