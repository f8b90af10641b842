//! A transaction locks only the rows that it names: another session has locked the rows of another job, calendar, backfill,
//! partition or node, and the transaction does not wait.

use std::future::Future;

use everytick_domain::{
    backfill::{Order, Stretch},
    calendar::CalendarSpec,
    edit::Change,
    flow::{DependsOn, When},
    ids::{BackfillId, RunId},
    job::{JobSpec, Overlap},
    partition::PartitionSet,
    run::Verdict,
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    BackfillStore as _, ClaimQueue, FlowStore as _, NewBackfill, NodeInfo, PutCalendar, QueueStore as _, Store as _,
    conformance::{OTHER_TENANT, TENANT, TTL, actor, by_name, change, incarnation, new_run, overlapping, s, spec},
};

use super::{
    Opened, bench,
    guards::{run, waits_or_ends},
};

/// Fails if the transaction waits while another session has locked these rows. Returns its answer.
pub(super) async fn does_not_wait<T: Send + 'static>(
    opened: &Opened,
    lock: &str,
    transaction: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut session = opened.connect().await;
    run(&mut session, &format!("begin; {lock}")).await;
    let (answer, answered) = tokio::sync::oneshot::channel();
    let mut task = tokio::spawn(async move { answer.send(transaction.await).ok() });
    assert!(!waits_or_ends(opened, &mut task).await, "it waits beside: {lock}");
    run(&mut session, "rollback").await;
    answered.await.unwrap()
}

fn queued(name: &str, queue: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: queue.into() }), ..spec(name) }
}

fn after(name: &str, parent: &str) -> JobSpec {
    let depends_on = vec![DependsOn { job: parent.into(), when: When::Succeeded }];
    JobSpec { schedule: None, depends_on, ..spec(name) }
}

/// `epochs_shared` and `epochs_guarded`: the job limits its runs, so a claim locks it twice.
#[tokio::test]
async fn a_claim_from_a_queue_does_not_wait_for_a_job_of_another_queue() {
    let opened = bench().await;
    opened.bench.create(queued("j", "q")).await;
    let other = opened.bench.create(queued("other", "r")).await;
    opened.bench.trigger(new_run("j", "k")).await;
    let ask = ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 1, lease: Span::seconds(30) };
    let (store, lock) = (opened.store.clone(), format!("select from epochs where job = '{}' for update", other.id));
    let claims = does_not_wait(&opened, &lock, async move { store.claim_queue(&ask).await }).await;
    assert_eq!(claims.unwrap().claims.len(), 1);
}

/// `lock_job` and `lock_epoch`.
#[tokio::test]
async fn a_request_and_an_edit_do_not_wait_for_another_job() {
    let opened = bench().await;
    opened.bench.create(spec("j")).await;
    let other = opened.bench.create(spec("other")).await;
    let lock = format!("select from epochs where job = '{}' for update", other.id);
    let store = opened.store.clone();
    let ask = async move { store.trigger(TENANT, &actor(), new_run("j", "k")).await };
    does_not_wait(&opened, &lock, ask).await.unwrap();
    let store = opened.store.clone();
    let edit = async move { store.edit_job(TENANT, &actor(), change("j", Change::Pause { note: None })).await };
    does_not_wait(&opened, &lock, edit).await.unwrap();
}

/// `lock_run`.
#[tokio::test]
async fn a_cancel_of_a_run_does_not_wait_for_another_run() {
    let opened = bench().await;
    opened.bench.create(overlapping("j")).await;
    let mut runs = Vec::new();
    for key in ["k", "l"] {
        runs.push(opened.bench.trigger(new_run("j", key)).await.id);
    }
    let (store, run, other) = (opened.store.clone(), runs[0], runs[1]);
    let lock = format!("select from runs where id = '{other}' for update");
    let cancelled = does_not_wait(&opened, &lock, async move { store.cancel_run(TENANT, &actor(), run).await }).await;
    assert_eq!(cancelled.unwrap().run.id, run);
}

/// `lock_jobs`: the flow starts two jobs at once.
#[tokio::test]
async fn a_flow_does_not_wait_for_a_job_outside_it() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("n", 1).await, bench.create(spec("a")).await);
    for child in ["b", "c"] {
        bench.create(after(child, "a")).await;
    }
    let other = bench.create(spec("other")).await;
    bench.go(10);
    let root = bench.claimed(&lease, &job, 10).await;
    bench.settle(&root, Verdict::Succeeded).await;
    let (store, lock) = (opened.store.clone(), format!("select from epochs where job = '{}' for update", other.id));
    let advanced = does_not_wait(&opened, &lock, async move { store.advance_flow(root.id).await }).await;
    assert_eq!(advanced.unwrap().started, 2);
}

/// `lock_flow`. The first advance creates the row of a flow.
#[tokio::test]
async fn a_flow_does_not_wait_for_another_flow() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("n", 1).await, bench.create(overlapping("a")).await);
    bench.create(JobSpec { overlap: Overlap::Allow, ..after("b", "a") }).await;
    bench.go(20);
    let roots = [bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &job, 20).await];
    for root in &roots {
        bench.settle(root, Verdict::Succeeded).await;
    }
    let [other, root] = roots.map(|root| root.id);
    assert_eq!(opened.store.advance_flow(other).await.unwrap().started, 1);
    let (store, lock) = (opened.store.clone(), format!("select from flows where id = '{other}' for update"));
    let advanced = does_not_wait(&opened, &lock, async move { store.advance_flow(root).await }).await;
    assert_eq!(advanced.unwrap().started, 1);
}

fn calendar(name: &str, date: &str) -> PutCalendar {
    let spec = CalendarSpec::new("UTC", vec![date.parse().unwrap()], vec![]).unwrap();
    PutCalendar { name: name.into(), spec, if_match: None }
}

/// Calendar `c`, used by two jobs, and calendar `other`, also of another tenant.
async fn with_calendars(opened: &Opened) {
    for (tenant, name) in [(TENANT, "c"), (TENANT, "other"), (OTHER_TENANT, "c")] {
        opened.store.put_calendar(tenant, &actor(), calendar(name, "1999-01-01")).await.unwrap();
    }
    for name in ["j", "k"] {
        opened.bench.create(using(name)).await;
    }
}

fn using(name: &str) -> JobSpec {
    let mut using = spec(name);
    using.schedule.as_mut().unwrap().exclude = vec!["c".into()];
    using
}

/// `lock_epochs` and `lock_calendar`.
#[tokio::test]
async fn a_new_version_of_a_calendar_does_not_wait_for_other_jobs_and_calendars() {
    let opened = bench().await;
    with_calendars(&opened).await;
    let other = opened.bench.create(spec("other")).await;
    for (lock, date) in [
        (format!("select from epochs where job = '{}' for update", other.id), "2026-11-16"),
        ("select from calendars where name = 'other' for update".to_owned(), "2026-11-17"),
        (format!("select from calendars where tenant = {} for update", OTHER_TENANT.raw()), "2026-11-18"),
    ] {
        let store = opened.store.clone();
        let put = async move { store.put_calendar(TENANT, &actor(), calendar("c", date)).await };
        does_not_wait(&opened, &lock, put).await.unwrap();
    }
}

/// `lock_calendars`.
#[tokio::test]
async fn a_new_definition_does_not_wait_for_calendars_that_it_does_not_name() {
    let opened = bench().await;
    with_calendars(&opened).await;
    for (lock, priority) in [
        ("select from calendars where name = 'other' for update".to_owned(), 1),
        (format!("select from calendars where tenant = {} for update", OTHER_TENANT.raw()), 2),
    ] {
        let store = opened.store.clone();
        let to = Change::Replace(Box::new(JobSpec { priority, ..using("j") }));
        let edit = async move { store.edit_job(TENANT, &actor(), change("j", to)).await };
        does_not_wait(&opened, &lock, edit).await.unwrap();
    }
}

/// `lock_backfill`.
#[tokio::test]
async fn a_backfill_does_not_wait_for_another() {
    let opened = bench().await;
    let lease = opened.bench.join("a", 1).await;
    opened.bench.create(overlapping("j")).await;
    opened.bench.go(100);
    let (ids, kept) = ([1, 2].map(|n| BackfillId::from_uuid(uuid::Uuid::from_u128(n))), Span::days(90));
    for id in ids {
        let stretch = Stretch { from: s(0), to: s(100), order: Order::Oldest };
        let ask = NewBackfill { id, job: by_name("j"), stretch, rate: None, payload: None, kept, idempotency: None };
        opened.store.create_backfill(TENANT, &actor(), ask).await.unwrap();
    }
    let lock = format!("select from backfills where id = '{}' for update", ids[1]);
    let store = opened.store.clone();
    let advance = async move { store.advance_backfill(&lease, ids[0], kept).await };
    assert!(does_not_wait(&opened, &lock, advance).await.unwrap().made > 0);
}

/// `lock_partitions`.
#[tokio::test]
async fn a_node_does_not_wait_for_partitions_that_it_does_not_acquire() {
    let opened = bench().await;
    let lease = opened.bench.join("a", 1).await;
    let (store, one) = (opened.store.clone(), PartitionSet::from_iter([1]));
    let acquire = async move { store.acquire(&lease, &one).await };
    let owned = does_not_wait(&opened, "select from partitions where partition = 2 for update", acquire).await;
    assert_eq!(owned.unwrap(), one);
}

/// `lock_name`. A live node renews its lease every few seconds. A lease that has ended stays until its claims are settled.
#[tokio::test]
async fn a_node_that_joins_does_not_wait_for_other_leases() {
    let opened = bench().await;
    let ended = opened.bench.join("b", 1).await;
    opened.bench.join("a", 2).await;
    opened.store.leave(&ended).await.unwrap();
    for (n, name, lock) in [(3, "c", "node = 'a'"), (4, "b", "ended")] {
        let (store, lock) = (opened.store.clone(), format!("select from leases where {lock} for update"));
        let join = async move { store.join(&NodeInfo::named(name), incarnation(n), TTL).await };
        does_not_wait(&opened, &lock, join).await.unwrap();
    }
}

/// `lock_claimed` and `lock_claimed_listed`: the first of the two runs is old, so its claim is listed.
#[tokio::test]
async fn a_change_of_the_queue_does_not_wait_for_the_settlements_of_another_job() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let (_, other) = (bench.create(queued("j", "q")).await, bench.create(overlapping("other")).await);
    bench.go(10);
    bench.claimed(&lease, &other, 10).await;
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    bench.claimed(&lease, &other, 600).await;
    let store = opened.store.clone();
    let to = Change::Replace(Box::new(queued("j", "r")));
    let edit = async move { store.edit_job(TENANT, &actor(), change("j", to)).await };
    does_not_wait(&opened, "select from runs for update", edit).await.unwrap();
}
