//! Dropping the table of a day removes what belongs to its runs, and nothing else.

use everytick_domain::{edit::Change, ids::RunId, job::Job, run::Verdict};
use everytick_store::{
    Lease, Redrive, Store as _,
    conformance::{Bench, TENANT, actor, by_name, overlapping, s},
};

use super::{
    Opened, bench,
    guards::{run, waits_for_a_lock},
};

const DAY: i64 = 86_400;

/// A run that has failed for good at its second attempt.
async fn failed(bench: &Bench, lease: &Lease, job: &Job, seconds: i64) -> RunId {
    bench.go(seconds);
    let first = bench.claimed(lease, job, seconds).await;
    bench.settle(&first, Verdict::Retry { due_at: s(seconds) }).await;
    let second = bench.claim(lease, first.id).await;
    bench.settle(&second, Verdict::Failed).await;
    first.id
}

/// The runs with rows in the table, oldest first.
async fn runs(opened: &Opened, table: &str, column: &str) -> Vec<RunId> {
    let mut look = opened.connect().await;
    let text = format!("select {column} from {table} order by {column}");
    let found: Vec<uuid::Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_all(&mut look).await.unwrap();
    found.into_iter().map(RunId::from_uuid).collect()
}

/// Raises the cursors past all days of the test, so that no day stays for its ticks.
async fn pass(bench: &Bench, jobs: &[&Job]) {
    for job in jobs {
        bench.raise(job, bench.epoch(job).await, Some(s(9 * DAY))).await;
    }
}

/// The first day stays because of an open run, the second is dropped, the third is too young.
#[tokio::test]
async fn a_dropped_day_takes_only_the_attempts_and_failures_of_its_own_runs() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let (early, job, late) = (
        bench.create(overlapping("early")).await,
        bench.create(overlapping("j")).await,
        bench.create(overlapping("late")).await,
    );
    let deleted = bench.create(overlapping("deleted")).await;
    let first_day = failed(bench, &lease, &early, 10).await;
    bench.go(20);
    let open = bench.claimed(&lease, &job, 20).await;
    failed(bench, &lease, &job, DAY + 10).await;
    let last = failed(bench, &lease, &job, DAY + 20).await;
    failed(bench, &lease, &deleted, DAY + 30).await;
    failed(bench, &lease, &late, DAY + 40).await;
    let third_day = failed(bench, &lease, &late, 2 * DAY + 10).await;
    pass(bench, &[&early, &job, &late, &deleted]).await;
    bench.go(3 * DAY);
    bench.edit("deleted", Change::Delete).await;
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(runs(&opened, "runs", "id").await, [first_day, open.id, third_day]);
    assert_eq!(runs(&opened, "last_runs", "id").await, [last], "the only live job without a later run");
    assert_eq!(runs(&opened, "attempts", "run").await, [first_day, last, third_day]);
    assert_eq!(runs(&opened, "failures", "run").await, [first_day, third_day]);
    // The first day is dropped after the second: its runs do not replace later ones.
    bench.settle(&open, Verdict::Succeeded).await;
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(runs(&opened, "runs", "id").await, [third_day]);
    assert_eq!(runs(&opened, "last_runs", "id").await, [first_day, last]);
}

/// `days_close` writes one row of the table that also has the fences and the version of the zone data.
#[tokio::test]
async fn dropping_a_day_changes_no_other_counter() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    failed(bench, &lease, &job, 10).await;
    pass(bench, &[&job]).await;
    bench.go(2 * DAY);
    let mut look = opened.connect().await;
    let all = "select name, value from counters where name <> 'days_closed' order by name";
    let before: Vec<(String, i64)> = sqlx::query_as(all).fetch_all(&mut look).await.unwrap();
    bench.store.prune(s(DAY), 100).await.unwrap();
    let closed = "select value from counters where name = 'days_closed'";
    assert_eq!(sqlx::query_scalar::<_, i64>(closed).fetch_one(&mut look).await.unwrap(), s(DAY).millis());
    assert_eq!(sqlx::query_as::<_, (String, i64)>(all).fetch_all(&mut look).await.unwrap(), before);
}

#[tokio::test]
async fn a_deleted_job_takes_only_its_own_last_run() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let (job, deleted) = (bench.create(overlapping("j")).await, bench.create(overlapping("deleted")).await);
    let kept = failed(bench, &lease, &job, 10).await;
    let gone = failed(bench, &lease, &deleted, 20).await;
    pass(bench, &[&job, &deleted]).await;
    bench.go(2 * DAY);
    bench.store.prune(s(DAY), 100).await.unwrap();
    assert_eq!(runs(&opened, "last_runs", "id").await, [kept, gone]);
    bench.edit("deleted", Change::Delete).await;
    bench.go(4 * DAY);
    assert_eq!(bench.store.prune(s(3 * DAY), 100).await.unwrap().jobs, 1);
    assert_eq!(runs(&opened, "last_runs", "id").await, [kept]);
}

/// `days_closed` waits for a prune that is closing days.
#[tokio::test]
async fn a_redrive_creates_no_run_in_a_day_whose_closing_was_under_way() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    failed(bench, &lease, &job, 10).await;
    bench.go(2 * DAY);
    let mut prune = opened.connect().await;
    let close = format!("begin; update counters set value = {} where name = 'days_closed'", s(DAY).millis());
    run(&mut prune, &close).await;
    let (store, ask) =
        (opened.store.clone(), Redrive { job: by_name("j"), from: s(0), to: None, limit: 10, dry_run: false });
    let mut redrive = tokio::spawn(async move { store.redrive(TENANT, &actor(), &ask).await });
    waits_for_a_lock(&opened, &mut redrive).await;
    run(&mut prune, "commit").await;
    assert_eq!(redrive.await.unwrap().unwrap().runs, []);
}
