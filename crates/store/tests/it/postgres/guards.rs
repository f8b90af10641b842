//! Guards that no rule of the suite can reach through [`Store`] alone: another session must create the state that they
//! refuse.

use everytick_domain::{
    backfill::{Order, Stretch},
    flow::{DependsOn, When},
    ids::{BackfillId, RunId},
    job::JobSpec,
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    BackfillStore, ClaimQueue, ClaimedRun, FlowStore, IdempotencyKey, Lease, NewBackfill, NewRun, QueueStore, Store,
    conformance::{TENANT, actor, by_name, incarnation, new_run, overlapping, s, spec},
};
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use super::{Opened, bench};

pub(super) async fn run(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(connection).await.unwrap();
}

fn queued() -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..overlapping("j") }
}

/// Ends a run outside the store, but keeps its waiting row. A promotion that loses a part of a manual repair could leave such rows.
async fn end_and_leave_waiting(opened: &Opened, id: RunId) {
    let mut session = opened.connect().await;
    run(&mut session, &format!("update runs set state = 2, finished_at = 1 where id = '{id}'")).await;
}

#[tokio::test]
async fn a_worker_never_claims_an_ended_run_whose_waiting_row_remains() {
    let opened = bench().await;
    opened.bench.create(queued()).await;
    let ended = opened.bench.trigger(new_run("j", "ended")).await;
    let open = opened.bench.trigger(new_run("j", "open")).await;
    end_and_leave_waiting(&opened, ended.id).await;
    let ask = ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 10, lease: Span::seconds(30) };
    let claimed = opened.store.claim_queue(&ask).await.unwrap().claims;
    assert_eq!(claimed.iter().map(|claim| claim.run.id).collect::<Vec<_>>(), [open.id]);
    assert_eq!(opened.bench.run(ended.id).await.state, State::Succeeded);
}

#[tokio::test]
async fn a_node_never_claims_an_ended_run_whose_waiting_row_remains() {
    let opened = bench().await;
    let lease = opened.bench.join("a", 1).await;
    opened.bench.create(overlapping("j")).await;
    let ended = opened.bench.trigger(new_run("j", "ended")).await;
    end_and_leave_waiting(&opened, ended.id).await;
    let claimed = opened.store.claim(&lease, &opened.bench.all(), &[ended.id]).await.unwrap();
    assert!(claimed.is_empty(), "{claimed:?}");
    assert_eq!(opened.bench.run(ended.id).await.state, State::Succeeded);
}

/// Returns when a session of the database waits for a lock. Fails if the task ends before.
pub(super) async fn waits_for_a_lock<T>(opened: &Opened, task: &mut JoinHandle<T>) {
    assert!(waits_or_ends(opened, task).await, "it did not wait for the other session");
}

/// Returns true when a session of the database waits for a lock, and false when the task has ended.
pub(super) async fn waits_or_ends<T>(opened: &Opened, task: &mut JoinHandle<T>) -> bool {
    let mut look = opened.connect().await;
    let waits = "select exists (select 1 from pg_stat_activity
                  where datname = current_database() and wait_event_type = 'Lock')";
    loop {
        let waiting: bool = sqlx::query_scalar(waits).fetch_one(&mut look).await.unwrap();
        if waiting {
            return true;
        }
        if tokio::time::timeout(std::time::Duration::from_millis(5), &mut *task).await.is_ok() {
            return false;
        }
    }
}

/// The second of two requests under one key must see what the first has created, so it waits for the commit of the first.
#[tokio::test]
async fn a_request_waits_for_another_under_the_same_key() {
    let opened = bench().await;
    opened.bench.create(spec("j")).await;
    let mut first = opened.connect().await;
    let lock = format!("begin; select pg_advisory_xact_lock(hashtextextended('k', {}))", TENANT.raw());
    run(&mut first, &lock).await;
    let idempotency = Some(IdempotencyKey { key: "k".into(), fingerprint: [1; 32] });
    let (store, ask) = (opened.store.clone(), NewRun { idempotency, ..new_run("j", "random") });
    let mut second = tokio::spawn(async move { store.trigger(TENANT, &actor(), ask).await });
    waits_for_a_lock(&opened, &mut second).await;
    run(&mut first, "commit").await;
    second.await.unwrap().unwrap();
}

/// A backfill is read again after its row is locked, so a change that another session commits before is respected.
#[tokio::test]
async fn a_backfill_makes_no_run_after_a_cancel_that_was_under_way() {
    let opened = bench().await;
    let (lease, _) = (opened.bench.join("a", 1).await, opened.bench.create(overlapping("j")).await);
    opened.bench.go(100);
    let (id, kept) = (BackfillId::from_uuid(uuid::Uuid::from_u128(1)), Span::days(90));
    let stretch = Stretch { from: s(0), to: s(100), order: Order::Oldest };
    let ask = NewBackfill { id, job: by_name("j"), stretch, rate: None, payload: None, kept, idempotency: None };
    opened.store.create_backfill(TENANT, &actor(), ask).await.unwrap();
    let mut cancel = opened.connect().await;
    run(&mut cancel, "begin; update backfills set state = 2, finished_at = 1").await;
    let store = opened.store.clone();
    let mut advance = tokio::spawn(async move { store.advance_backfill(&lease, id, kept).await.unwrap().made });
    waits_for_a_lock(&opened, &mut advance).await;
    run(&mut cancel, "commit").await;
    assert_eq!(advance.await.unwrap(), 0);
}

/// A node lists a claim that it has read. Meanwhile another node has claimed the run again.
#[tokio::test]
async fn a_list_of_old_claims_leaves_the_row_of_a_newer_claim() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.go(600);
    let mut newer = opened.connect().await;
    let insert = format!(
        "begin; insert into open_claims (run, job, tenant, incarnation, fence)
         select id, job, tenant, '{}', fence + 1 from runs",
        incarnation(2).uuid()
    );
    run(&mut newer, &insert).await;
    let (store, bound) = (opened.store.clone(), RunId::floor(s(540)));
    let mut list = tokio::spawn(async move { while store.list_old_claims(&lease, bound).await.unwrap() < bound {} });
    waits_for_a_lock(&opened, &mut list).await;
    run(&mut newer, "commit").await;
    list.await.unwrap();
    let row: (uuid::Uuid, i64) =
        sqlx::query_as("select incarnation, fence from open_claims").fetch_one(&mut newer).await.unwrap();
    assert_eq!(row, (incarnation(2).uuid(), claimed.fence.raw() + 1));
}

/// A node removes a row that it found stale. A newer claim has changed the row since it was read.
#[tokio::test]
async fn a_stale_row_of_an_old_claim_that_a_newer_claim_has_changed_stays() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let mut newer = opened.connect().await;
    run(&mut newer, "update runs set state = 2, incarnation = null, finished_at = 0").await;
    run(&mut newer, "begin; lock table open_claims in exclusive mode").await;
    let store = opened.store.clone();
    let mut compare = tokio::spawn(async move { store.listed_claims(&lease, None, 10).await });
    waits_for_a_lock(&opened, &mut compare).await;
    run(&mut newer, "update open_claims set fence = fence + 1; commit").await;
    assert!(compare.await.unwrap().unwrap().claims.is_empty());
    let left: i64 = sqlx::query_scalar("select count(*) from open_claims").fetch_one(&mut newer).await.unwrap();
    assert_eq!(left, 1);
}

/// The job `a`, these jobs, which follow it, and a run of `a` that a node has claimed.
async fn followed(opened: &Opened, children: &[&str]) -> ClaimedRun {
    let bench = &opened.bench;
    let (lease, job) = (bench.join("n", 1).await, bench.create(spec("a")).await);
    for child in children {
        let depends_on = vec![DependsOn { job: "a".into(), when: When::Succeeded }];
        bench.create(JobSpec { schedule: None, depends_on, ..spec(child) }).await;
    }
    bench.go(10);
    bench.claimed(&lease, &job, 10).await
}

/// A run that ends before the cancel has locked its row keeps its state.
#[tokio::test]
async fn a_cancelled_flow_leaves_a_run_whose_settlement_was_under_way() {
    let opened = bench().await;
    let root = followed(&opened, &["b"]).await;
    let mut settle = opened.connect().await;
    run(&mut settle, "begin; update runs set state = 2, finished_at = 1, incarnation = null").await;
    let store = opened.store.clone();
    let mut cancel = tokio::spawn(async move { store.cancel_flow(TENANT, &actor(), root.id).await });
    waits_for_a_lock(&opened, &mut cancel).await;
    run(&mut settle, "commit").await;
    assert!(cancel.await.unwrap().unwrap().cancelled.is_empty());
    assert_eq!(opened.bench.run(root.id).await.state, State::Succeeded);
}

/// The state of a child's job is read after the job is locked (`lock_job` for one child, `lock_jobs` for several).
#[tokio::test]
async fn a_flow_starts_no_run_of_a_job_whose_pause_was_under_way() {
    for children in [&["b"][..], &["b", "c"]] {
        let opened = bench().await;
        let root = followed(&opened, children).await;
        opened.bench.settle(&root, Verdict::Succeeded).await;
        let mut edit = opened.connect().await;
        run(&mut edit, "begin; select from epochs for update").await;
        run(&mut edit, "update jobs set paused_at = 1 where name = 'b'").await;
        let (store, flow) = (opened.store.clone(), root.id);
        let mut advance = tokio::spawn(async move { store.advance_flow(flow).await.unwrap().started });
        waits_for_a_lock(&opened, &mut advance).await;
        run(&mut edit, "commit").await;
        assert_eq!(advance.await.unwrap(), children.len() - 1);
    }
}

/// A search for lost claims that waits in the middle: it has read which leases have ended, and lists the claims of the first.
async fn search_under_way(opened: &Opened, lease: Lease, claimed: &ClaimedRun) -> (PgConnection, JoinHandle<()>) {
    let mut session = opened.connect().await;
    let insert = format!(
        "begin; insert into open_claims (run, job, tenant, incarnation, fence)
         select id, job, tenant, incarnation, 0 from runs where id = '{}'",
        claimed.id
    );
    run(&mut session, &insert).await;
    let store = opened.store.clone();
    let mut search = tokio::spawn(async move { drop(store.load_lost(&lease, 10).await.unwrap()) });
    waits_for_a_lock(opened, &mut search).await;
    (session, search)
}

#[tokio::test]
async fn the_claims_of_a_lease_that_ends_during_a_search_are_found_by_the_next() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (first, second, alive) = (bench.join("a", 1).await, bench.join("b", 2).await, bench.join("c", 3).await);
    let job = bench.create(overlapping("j")).await;
    bench.go(20);
    let claims = [bench.claimed(&first, &job, 10).await, bench.claimed(&second, &job, 20).await];
    bench.store.leave(&first).await.unwrap();
    let (mut session, search) = search_under_way(&opened, alive.clone(), &claims[0]).await;
    bench.store.leave(&second).await.unwrap();
    run(&mut session, "rollback").await;
    search.await.unwrap();
    let mut lost = bench.store.load_lost(&alive, 10).await.unwrap();
    lost.sort_by_key(|run| run.id);
    assert_eq!(lost, claims);
}

#[tokio::test]
async fn the_bound_of_a_lease_that_is_taken_again_during_a_search_stays() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, alive) = (bench.join("a", 1).await, bench.join("b", 2).await);
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.store.leave(&lease).await.unwrap();
    let (mut session, search) = search_under_way(&opened, alive, &claimed).await;
    let again = bench.join("a", 1).await;
    run(&mut session, "rollback").await;
    search.await.unwrap();
    let bound = bench.store.listed_claims(&again, None, 10).await.unwrap().open_from.unwrap();
    assert!(bound <= claimed.id, "{bound}");
}

/// `forget_lease` removes the lease that it names, which has no claims. The claims of a lease that ends meanwhile are not
/// listed yet, so without its lease they would never be found.
#[tokio::test]
async fn a_lease_that_ends_while_another_is_removed_stays() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (without_claims, stuck) = (bench.join("a", 1).await, bench.join("b", 2).await);
    let (ending, alive) = (bench.join("c", 3).await, bench.join("d", 4).await);
    let job = bench.create(overlapping("j")).await;
    bench.go(20);
    let (claimed, last) = (bench.claimed(&stuck, &job, 10).await, bench.claimed(&ending, &job, 20).await);
    bench.store.leave(&without_claims).await.unwrap();
    bench.store.leave(&stuck).await.unwrap();
    let (mut session, search) = search_under_way(&opened, alive.clone(), &claimed).await;
    bench.store.leave(&ending).await.unwrap();
    run(&mut session, "rollback").await;
    search.await.unwrap();
    assert!(bench.store.load_lost(&alive, 10).await.unwrap().contains(&last));
}

/// `forget_lease` removes only a lease that has ended. The search reads the leases in the order of their bounds, so it has
/// not reached the younger one yet.
#[tokio::test]
async fn a_lease_that_is_taken_again_while_it_is_removed_stays() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (stuck, alive) = (bench.join("a", 1).await, bench.join("b", 2).await);
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let claimed = bench.claimed(&stuck, &job, 10).await;
    bench.go(30);
    let without_claims = bench.join("c", 3).await;
    bench.store.leave(&without_claims).await.unwrap();
    bench.store.leave(&stuck).await.unwrap();
    let (mut session, search) = search_under_way(&opened, alive, &claimed).await;
    let again = bench.join("c", 3).await;
    run(&mut session, "rollback").await;
    search.await.unwrap();
    bench.store.raise_fence(&again).await.unwrap();
}
