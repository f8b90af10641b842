//! A job moves to another home region while one of its runs is being claimed or settled.

use std::time::Duration;

use everytick_domain::{edit::Change, job::JobSpec, partition::PartitionSet, run::Verdict};
use everytick_store::{
    Lease, SettleAnswer, Store as _,
    conformance::{Bench, TENANT, actor, change, new_run, settle, spec},
};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;

use super::{Opened, bench};

fn at_home(region: &str) -> JobSpec {
    JobSpec { home_region: Some(region.to_owned()), ..spec("j") }
}

async fn run(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(connection).await.unwrap();
}

/// Waits until a statement in this database waits for a lock, as this task must.
async fn waits<T>(opened: &Opened, task: &JoinHandle<T>) {
    let mut look = opened.connect().await;
    let any = "select exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(any).fetch_one(&mut look).await.unwrap() {
        assert!(!task.is_finished(), "the task did not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    look.close().await.unwrap();
}

async fn waiting(bench: &Bench, lease: &Lease, partition: u16) -> usize {
    let partitions: PartitionSet = [partition].into_iter().collect();
    bench.store.peek_waiting(lease, &partitions, &[], None, 10).await.unwrap().due.len()
}

/// The settlement has read the job's partition and comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_for_the_settlement_in_progress_and_moves_the_run_that_it_puts_back() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, was) = (bench.join("a", 1).await, bench.create(at_home("eu")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &was, 10).await;
    let mut settling = opened.connect().await;
    run(&mut settling, &format!("begin; select from runs where id = '{}' for update", claimed.id)).await;
    let store = opened.store.clone();
    let edit = change("j", Change::Replace(Box::new(at_home("us"))));
    let moving = tokio::spawn(async move { store.edit_job(TENANT, &actor(), edit).await });
    waits(&opened, &moving).await;
    let put_back = format!(
        "update runs set state = 0, incarnation = null where id = '{run}';
         insert into waiting select id, job, tenant, {partition}, 5, due_at, false, false, 1 from runs where id = '{run}';
         commit",
        run = claimed.id,
        partition = was.partition,
    );
    run(&mut settling, &put_back).await;
    let now = moving.await.unwrap().unwrap().job;
    assert_ne!(now.partition, was.partition);
    assert_eq!((waiting(bench, &lease, now.partition).await, waiting(bench, &lease, was.partition).await), (1, 0));
}

/// The move has read the claimed runs and comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_waits_for_the_move_in_progress_and_puts_the_run_into_the_new_partition() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, was) = (bench.join("a", 1).await, bench.create(at_home("eu")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &was, 10).await;
    let to = (was.partition + 16) % 256;
    let mut moving = opened.connect().await;
    let held = format!(
        "begin; select from epochs where job = '{job}' for update; select from runs where job = '{job}' for update;
         update epochs set partition = {to} where job = '{job}'",
        job = was.id
    );
    run(&mut moving, &held).await;
    let (store, said) = (opened.store.clone(), settle(&claimed, Verdict::Redeliver));
    // As the engine does: it repeats a locked settlement.
    let settling = tokio::spawn(async move {
        loop {
            match store.settle(std::slice::from_ref(&said)).await.unwrap()[..] {
                [SettleAnswer::Locked] => {}
                [answer] => return answer,
                _ => panic!("one answer for one settlement"),
            }
        }
    });
    waits(&opened, &settling).await;
    run(&mut moving, "commit").await;
    assert_eq!(settling.await.unwrap(), SettleAnswer::Settled);
    assert_eq!((waiting(bench, &lease, to).await, waiting(bench, &lease, was.partition).await), (1, 0));
}

/// The node settles a claim that was in progress; the run is not lost between two partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_for_the_claim_in_progress() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, was) = (bench.join("a", 1).await, bench.create(at_home("eu")).await);
    let asked = bench.trigger(new_run("j", "k")).await;
    let mut claiming = opened.connect().await;
    run(&mut claiming, &format!("begin; select from waiting where run = '{}' for update", asked.id)).await;
    let store = opened.store.clone();
    let edit = change("j", Change::Replace(Box::new(at_home("us"))));
    let moving = tokio::spawn(async move { store.edit_job(TENANT, &actor(), edit).await });
    waits(&opened, &moving).await;
    run(&mut claiming, "rollback").await;
    let now = moving.await.unwrap().unwrap().job;
    assert_eq!((waiting(bench, &lease, now.partition).await, waiting(bench, &lease, was.partition).await), (1, 0));
    let run = bench.claim(&lease, asked.id).await;
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Settled);
}
