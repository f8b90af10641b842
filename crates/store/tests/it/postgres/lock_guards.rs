//! Guards that only matter while another session is between its statement and its commit. Each test fails without the
//! lock that it names.

use everytick_domain::{
    calendar::CalendarSpec,
    edit::Change,
    ids::{Epoch, RunId},
    job::{JobSpec, Overlap},
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    Beat, ClaimQueue, NodeInfo, OldClaim, PutCalendar, QueueStore, Raise, Store, StoreError, Success,
    conformance::{TENANT, TTL, actor, change, incarnation, new_run, overlapping, s, settle, spec},
};

use super::{
    Opened, bench,
    guards::{run, waits_for_a_lock, waits_or_ends},
};

/// A join reads the leases of its name only after it has locked them, so a renewal that was under way counts (`lock_name`).
#[tokio::test]
async fn a_name_stays_with_a_lease_whose_renewal_was_under_way() {
    let opened = bench().await;
    opened.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    opened.bench.go(20);
    let mut renewal = opened.connect().await;
    run(&mut renewal, &format!("begin; update leases set until = {}", s(30).millis())).await;
    let store = opened.store.clone();
    let mut join = tokio::spawn(async move { store.join(&NodeInfo::named("a"), incarnation(2), TTL).await });
    waits_for_a_lock(&opened, &mut join).await;
    run(&mut renewal, "commit").await;
    let refused = join.await.unwrap();
    assert!(matches!(refused, Err(StoreError::NodeNameTaken(_))), "{refused:?}");
}

/// A settlement that puts a run back reads the run only after it has locked it (`lock_settled`).
#[tokio::test]
async fn a_run_whose_cancel_was_under_way_is_not_put_back() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    let mut cancel = opened.connect().await;
    run(&mut cancel, "begin; update runs set state = 4, finished_at = 1, incarnation = null").await;
    let (store, back) = (opened.store.clone(), settle(&claimed, Verdict::HandBack));
    let mut settling = tokio::spawn(async move { store.settle(&[back]).await });
    waits_for_a_lock(&opened, &mut settling).await;
    run(&mut cancel, "commit").await;
    settling.await.unwrap().unwrap();
    assert_eq!(bench.run(claimed.id).await.state, State::Cancelled);
}

/// A transaction that appends to a log reads the log only after it has locked the claim. So an addition that was in progress is
/// kept (`worker_log_lock`).
#[tokio::test]
async fn an_addition_to_a_log_keeps_one_that_was_under_way() {
    let opened = bench().await;
    let queued = JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..overlapping("j") };
    opened.bench.create(queued).await;
    opened.bench.trigger(new_run("j", "k")).await;
    let claimed = opened.store.claim_queue(&ask(1)).await.unwrap().claims.remove(0).run;
    let mut other = opened.connect().await;
    run(&mut other, "begin; update worker_claims set log = 'first '").await;
    let (store, id, fence) = (opened.store.clone(), claimed.id, claimed.fence);
    let mut adding = tokio::spawn(async move { store.log_claim(TENANT, id, fence, "second".into()).await });
    waits_for_a_lock(&opened, &mut adding).await;
    run(&mut other, "commit").await;
    assert!(adding.await.unwrap().unwrap());
    let log = opened.store.claim_log(TENANT, claimed.id).await.unwrap();
    assert!(log.as_ref().is_some_and(|log| log.contains("first second")), "{log:?}");
}

fn ask(limit: usize) -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit, lease: Span::seconds(30) }
}

/// The runs that a claim from the queue `q` gets. Another session commits this change after the claim has read the queue, and
/// before the claim has locked the job.
async fn claimed_during(opened: &Opened, change: &str) -> Vec<RunId> {
    let mut edit = opened.connect().await;
    run(&mut edit, "begin; select from epochs for update").await;
    run(&mut edit, change).await;
    let store = opened.store.clone();
    let mut claim = tokio::spawn(async move { store.claim_queue(&ask(1)).await });
    waits_for_a_lock(opened, &mut claim).await;
    run(&mut edit, "commit").await;
    claim.await.unwrap().unwrap().claims.into_iter().map(|claim| claim.run.id).collect()
}

fn queued() -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..overlapping("j") }
}

/// `queue_dequeue` skips locked rows, so one of them does not stop its queue.
#[tokio::test]
async fn a_run_whose_waiting_row_is_locked_is_left_to_the_next_claim() {
    let opened = bench().await;
    opened.bench.create(queued()).await;
    let locked = opened.bench.trigger(new_run("j", "locked")).await;
    let free = opened.bench.trigger(new_run("j", "free")).await;
    let mut session = opened.connect().await;
    run(&mut session, &format!("begin; select from waiting where run = '{}' for update", locked.id)).await;
    let claims = opened.store.claim_queue(&ask(2)).await.unwrap().claims;
    assert_eq!(claims.iter().map(|claim| claim.run.id).collect::<Vec<_>>(), [free.id]);
    run(&mut session, "rollback").await;
    let claims = opened.store.claim_queue(&ask(2)).await.unwrap().claims;
    assert_eq!(claims.iter().map(|claim| claim.run.id).collect::<Vec<_>>(), [locked.id]);
}

/// `queue_dequeue` compares the queue again.
#[tokio::test]
async fn a_worker_claims_no_run_that_has_moved_to_another_queue_meanwhile() {
    let opened = bench().await;
    opened.bench.create(queued()).await;
    opened.bench.trigger(new_run("j", "moved")).await;
    assert_eq!(claimed_during(&opened, "update waiting set queue = 'other'").await, []);
}

/// `queue_dequeue` asks for marked backlogs again.
#[tokio::test]
async fn a_worker_claims_no_run_of_a_backlog_that_was_marked_meanwhile() {
    let opened = bench().await;
    let job = opened.bench.create(queued()).await;
    opened.bench.trigger(new_run("j", "marked")).await;
    let mark = format!(
        "insert into backlog_work (job, action, tenant, up_to, created_at, worked_at, actor)
         values ('{}', 1, {}, (select max(lot) from waiting), 0, 0, 'tester')",
        job.id,
        TENANT.raw()
    );
    assert_eq!(claimed_during(&opened, &mark).await, []);
}

/// `raise_cursors` leaves out a job that an edit has locked. Without that, it would wait for the cursor, and then raise the
/// value that the edit has set.
#[tokio::test]
async fn a_raise_does_not_wait_for_an_edit_to_raise_its_cursor() {
    let opened = bench().await;
    let job = opened.bench.create(spec("j")).await;
    let mut edit = opened.connect().await;
    run(&mut edit, "begin; select from epochs for update; update epochs set epoch = 2").await;
    run(&mut edit, &format!("update cursors set next_tick = {}", s(20).millis())).await;
    let raise = [Raise { job: job.id, epoch: Epoch::from_raw(1), cursor: Some(s(60)) }];
    let store = opened.store.clone();
    let mut raising = tokio::spawn(async move { store.raise_cursors(&raise).await });
    assert!(!waits_or_ends(&opened, &mut raising).await, "it waits for the edit");
    run(&mut edit, "commit").await;
    assert_eq!(opened.bench.cursor(&job).await, Some(s(20)));
}

/// A lease of an earlier release that has ended reads no claims, so it does not lower a bound (`renew`).
#[tokio::test]
async fn an_ended_lease_of_an_earlier_release_does_not_lower_the_bound_of_a_renewal() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(20);
    let claimed = bench.claimed(&lease, &job, 20).await;
    bench.go(600);
    let bound = RunId::floor(s(540));
    bench.pass_claims(&lease, bound).await;
    let mut session = opened.connect().await;
    let ended = "insert into leases (incarnation, node, fence, until, open_from, ended, version, started_at, renewed_at)
                 values (gen_random_uuid(), 'old', 1, 9e15, 'ffffffff-ffff-ffff-ffff-ffffffffffff', true, '0.1.0', 0, 0)";
    run(&mut session, ended).await;
    let beat = Beat { old_claims: vec![OldClaim::of(&claimed)], ..Beat::of(bound) };
    bench.store.renew(&lease, Span::days(9), &beat).await.unwrap();
    assert_eq!(bench.store.listed_claims(&lease, None, 10).await.unwrap().open_from, Some(bound));
}

/// `succeed` compares state and fence of the run once more after it has waited for the run.
#[tokio::test]
async fn a_success_that_waited_for_another_settlement_changes_nothing() {
    for (change, state) in [
        ("state = 3, finished_at = 1, incarnation = null", State::Failed),
        ("fence = fence + 1, attempt = attempt + 1", State::Claimed),
    ] {
        let opened = bench().await;
        opened.bench.create(queued()).await;
        opened.bench.trigger(new_run("j", "k")).await;
        let claimed = opened.store.claim_queue(&ask(1)).await.unwrap().claims.remove(0).run;
        let mut other = opened.connect().await;
        run(&mut other, &format!("begin; update runs set {change}")).await;
        let done = [Success { run: claimed.id, fence: claimed.fence, output: None }];
        let store = opened.store.clone();
        let mut success = tokio::spawn(async move { store.succeed(TENANT, &done).await });
        waits_for_a_lock(&opened, &mut success).await;
        run(&mut other, "commit").await;
        assert_eq!(success.await.unwrap().unwrap(), [None], "{change}");
        assert_eq!(opened.bench.run(claimed.id).await.state, state, "{change}");
    }
}

/// `cap_leases` skips a lease that another session has locked.
#[tokio::test]
async fn a_renewal_does_not_wait_for_a_lease_that_it_could_shorten() {
    let opened = bench().await;
    opened.bench.join("long", 1).await;
    let lease = opened.bench.join("a", 2).await;
    let mut session = opened.connect().await;
    run(&mut session, "update leases set until = until + 1000000000 where node = 'long'").await;
    run(&mut session, "begin; select from leases where node = 'long' for update").await;
    let (store, beat) = (opened.store.clone(), Beat::of(RunId::floor(s(0))));
    let mut renewal = tokio::spawn(async move { store.renew(&lease, TTL, &beat).await });
    assert!(!waits_or_ends(&opened, &mut renewal).await, "it waits for the other lease");
}

/// `lock_claimed_listed` also locks claims older than every bound: a settlement under way may put such a run back.
#[tokio::test]
async fn a_change_of_the_queue_waits_for_the_settlement_of_an_old_claim() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(queued()).await);
    bench.go(10);
    let old = bench.waiting(&lease, &job, 10).await;
    assert_eq!(opened.store.claim_queue(&ask(1)).await.unwrap().claims.len(), 1);
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let mut settlement = opened.connect().await;
    run(&mut settlement, &format!("begin; select from runs where id = '{old}' for update")).await;
    let target = TargetSpec::Queue(QueueTarget { name: "other".into() });
    let to = change("j", Change::Replace(Box::new(JobSpec { target, ..queued() })));
    let store = opened.store.clone();
    let mut edit = tokio::spawn(async move { store.edit_job(TENANT, &actor(), to).await });
    waits_for_a_lock(&opened, &mut edit).await;
    let back = "update runs set state = 0, incarnation = null, worker = null, started_at = null;
                insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank)
                select id, job, tenant, 0, 5, due_at, false, false, 1, 'q', due_at from runs;
                delete from worker_claims; commit";
    run(&mut settlement, back).await;
    edit.await.unwrap().unwrap();
    let queue: String = sqlx::query_scalar("select queue from waiting").fetch_one(&mut settlement).await.unwrap();
    assert_eq!(queue, "other");
}

/// Checks that a worker claims nothing while another session has this lock, and claims the waiting run afterwards.
async fn claims_nothing_beside(opened: &Opened, lock: &str) {
    let mut session = opened.connect().await;
    run(&mut session, &format!("begin; {lock}")).await;
    assert_eq!(opened.store.claim_queue(&ask(1)).await.unwrap().claims.len(), 0);
    run(&mut session, "rollback").await;
    assert_eq!(opened.store.claim_queue(&ask(1)).await.unwrap().claims.len(), 1);
}

/// Another claim may be about to use the last run that the job allows (`epochs_guarded`, and `epochs_guarded_free` when the first has
/// waited for too long).
#[tokio::test]
async fn a_job_that_limits_its_runs_is_left_out_while_another_claim_has_it_locked() {
    let opened = bench().await;
    opened.bench.create(JobSpec { overlap: Overlap::Skip, ..queued() }).await;
    opened.bench.trigger(new_run("j", "k")).await;
    claims_nothing_beside(&opened, "select from epochs for no key update").await;
}

/// Claims queue behind an edit that waits at the gate of the job (`epochs_shared`, and `epochs_shared_free` when the first
/// has waited for too long).
#[tokio::test]
async fn a_job_is_left_out_while_an_edit_waits_at_its_gate() {
    let opened = bench().await;
    opened.bench.create(queued()).await;
    opened.bench.trigger(new_run("j", "k")).await;
    claims_nothing_beside(&opened, "select pg_advisory_xact_lock(8640, gate) from generate_series(0, 63) gate").await;
}

/// `lock_epoch` and, for several jobs, `lock_epochs` wait at the gates of the jobs, so that a stream of claims does not
/// starve them.
#[tokio::test]
async fn a_new_version_of_a_calendar_waits_at_the_gates_of_its_jobs() {
    for users in [&["j"][..], &["j", "k"]] {
        let opened = bench().await;
        let put = |date: &str| {
            let spec = CalendarSpec::new("UTC", vec![date.parse().unwrap()], vec![]).unwrap();
            PutCalendar { name: "c".into(), spec, if_match: None }
        };
        opened.store.put_calendar(TENANT, &actor(), put("1999-01-01")).await.unwrap();
        for name in users {
            let mut naming = spec(name);
            naming.schedule.as_mut().unwrap().exclude = vec!["c".into()];
            opened.bench.create(naming).await;
        }
        let mut claims = opened.connect().await;
        run(&mut claims, "begin; select pg_advisory_xact_lock_shared(8640, gate) from generate_series(0, 63) gate")
            .await;
        let (store, version) = (opened.store.clone(), put("2026-11-16"));
        let mut putting = tokio::spawn(async move { store.put_calendar(TENANT, &actor(), version).await });
        waits_for_a_lock(&opened, &mut putting).await;
        run(&mut claims, "commit").await;
        putting.await.unwrap().unwrap();
    }
}
