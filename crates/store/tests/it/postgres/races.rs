//! Statements that had to wait, or were abandoned, while other sessions committed changes.

use std::{sync::Arc, time::Duration};

use everytick_domain::{edit::Change, ids::Epoch, job::Job, partition::PartitionSet, plan::Fate, time::Span};
use everytick_store::{
    ChangeMark, NodeInfo, PostgresStore, Raise, RecordRow, RowAnswer, Store, StoreError,
    conformance::{
        LIMITS, START, TENANT, TTL, actor, born, change, incarnation, overlapping, pause, range, s,
        server::{Server, options},
        spec, tick, ticks,
    },
};
use sqlx::{Connection, PgConnection};

use super::{
    bench,
    guards::{run, waits_for_a_lock},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waited_records_no_tick_of_a_job_whose_pause_was_answered() {
    for rows in FORMS {
        let opened = bench().await;
        let bench = &opened.bench;
        let lease = bench.join("a", 1).await;
        let (paused, other) = (bench.create(spec("paused")).await, bench.create(spec("other")).await);
        let mut blocker = opened.connect().await;
        run(&mut blocker, "begin; select * from leases for update").await;
        bench.go(9);
        let store = opened.store.clone();
        let batch = [ticks(&paused, 1, rows(&paused)), ticks(&other, 1, rows(&other))];
        let mut recording = tokio::spawn(async move { store.record(&lease, &batch).await });
        waits_for_a_lock(&opened, &mut recording).await;
        assert_eq!(bench.edit("paused", pause()).await.effective_at, Some(s(9)));
        bench.go(20);
        bench.store.now().await.unwrap();
        run(&mut blocker, "commit").await;
        let recorded = recording.await.unwrap().unwrap();
        let all = |answer: RowAnswer| vec![answer; rows(&other).len()];
        assert_eq!((recorded.jobs, recorded.now), (vec![all(RowAnswer::Stale), all(RowAnswer::Inserted)], s(20)));
        assert!(bench.history(&paused).await.is_empty());
    }
}

/// The clock is read after the lease is locked, not when the statement began. Uses the server's own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waited_until_its_lease_expired_records_nothing() {
    let database = Server::shared().blank().await;
    let store = Arc::new(PostgresStore::connect(&database.url, options(None), LIMITS).await.unwrap());
    let ttl = Span::millis(600);
    let (lease, _) = store.join(&NodeInfo::named("a"), incarnation(1), ttl).await.unwrap();
    let mut blocker = PgConnection::connect(&database.url).await.unwrap();
    run(&mut blocker, "begin; select * from leases for update").await;
    let recording = tokio::spawn({
        let store = store.clone();
        async move { store.record(&lease, &[]).await }
    });
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(!recording.is_finished(), "it waits for the lease, which was alive at its start");
    run(&mut blocker, "commit").await;
    assert!(matches!(recording.await.unwrap(), Err(StoreError::LeaseLost)));
    store.close().await;
}

/// One tick of each job, born claimed or waiting, or several ticks: each has its own statement.
const FORMS: [fn(&Job) -> Vec<RecordRow>; 3] = [
    |job| vec![born(job, 10)],
    |job| vec![tick(job, 10, Fate::Run)],
    |job| vec![born(job, 10), tick(job, 20, Fate::Run)],
];

#[tokio::test]
async fn a_job_that_is_being_edited_is_skipped_and_the_others_are_recorded() {
    for rows in FORMS {
        let opened = bench().await;
        let bench = &opened.bench;
        let lease = bench.join("a", 1).await;
        let (held, other) = (bench.create(spec("held")).await, bench.create(spec("other")).await);
        bench.go(20);
        let mut editor = opened.connect().await;
        run(&mut editor, &format!("begin; select * from epochs where job = '{}' for update", held.id)).await;
        let batch = [ticks(&held, 1, rows(&held)), ticks(&other, 1, rows(&other))];
        let recorded = bench.store.record(&lease, &batch).await.unwrap();
        let all = |answer: RowAnswer| vec![answer; rows(&held).len()];
        assert_eq!(recorded.jobs, [all(RowAnswer::Stale), all(RowAnswer::Inserted)]);
        run(&mut editor, "rollback").await;
        assert_eq!(bench.record(&lease, batch[0].clone()).await, all(RowAnswer::Inserted));
        assert_eq!(bench.record(&lease, batch[0].clone()).await, all(RowAnswer::Existed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_waits_for_the_batch_in_progress_and_sees_its_ticks() {
    let opened = bench().await;
    let bench = &opened.bench;
    bench.join("a", 1).await;
    let job = bench.create(overlapping("j")).await;
    bench.go(25);
    let mut recorder = opened.connect().await;
    run(&mut recorder, &format!("begin; select * from epochs where job = '{}' for key share", job.id)).await;
    let store = opened.store.clone();
    let mut editing = tokio::spawn(async move { store.edit_job(TENANT, &actor(), change("j", pause())).await });
    waits_for_a_lock(&opened, &mut editing).await;
    let row = tick(&job, 10, Fate::Run).tick;
    let insert = format!(
        "insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at, skip_reason)
         values ('{}', 1, '{}', 1, {at}, {at}, 5, false, false, 0, 0, 0, {at}, 1); commit",
        row.id, job.id, at = row.at.millis()
    );
    run(&mut recorder, &insert).await;
    assert_eq!(editing.await.unwrap().unwrap().effective_at, Some(s(25)));
    let at: Vec<_> =
        bench.history(&job).await.iter().map(|run| (run.scheduled_at, run.skip_reason.is_some())).collect();
    assert_eq!(at, [(s(10), true), (s(20), false)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_over_waits_for_the_statement_of_the_dead_node_and_the_next_one_is_rejected() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (dead, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    let new = bench.join("b", 2).await;
    let all = PartitionSet::all(256);
    bench.store.acquire(&dead, &all).await.unwrap();
    let job = bench.create(spec("j")).await;
    let mut in_flight = opened.connect().await;
    run(&mut in_flight, &format!("begin; select * from leases where incarnation = '{}' for share", dead.incarnation))
        .await;
    bench.go(15);
    let (store, lease) = (opened.store.clone(), new.clone());
    let mut acquiring = tokio::spawn(async move { store.acquire(&lease, &PartitionSet::all(256)).await });
    waits_for_a_lock(&opened, &mut acquiring).await;
    run(&mut in_flight, "commit").await;
    assert_eq!(acquiring.await.unwrap().unwrap(), all);
    // Rejected even if the clock is set back to before the expiry.
    bench.go(10);
    let late = bench.store.record(&dead, &[ticks(&job, 1, vec![born(&job, 10)])]).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waits_while_its_node_is_fenced_records_nothing() {
    for rows in FORMS {
        let opened = bench().await;
        let bench = &opened.bench;
        let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
        bench.go(20);
        let mut fencing = opened.connect().await;
        run(&mut fencing, "begin; update leases set fence = fence + 1").await;
        let (store, batch) = (opened.store.clone(), [ticks(&job, 1, rows(&job))]);
        let mut recording = tokio::spawn(async move { store.record(&lease, &batch).await });
        waits_for_a_lock(&opened, &mut recording).await;
        run(&mut fencing, "commit").await;
        assert!(matches!(recording.await.unwrap(), Err(StoreError::LeaseLost)));
        assert!(bench.history(&job).await.is_empty());
    }
}

#[tokio::test]
async fn a_raise_skips_a_job_that_is_being_edited_and_does_not_undo_the_edit() {
    let opened = bench().await;
    let bench = &opened.bench;
    let job = bench.create(spec("j")).await;
    let mut editor = opened.connect().await;
    let text = format!(
        "begin; select * from epochs where job = '{id}' for update; update cursors set next_tick = {}; update epochs set epoch = 2",
        s(20).millis(),
        id = job.id
    );
    run(&mut editor, &text).await;
    let raise = [Raise { job: job.id, epoch: Epoch::from_raw(1), cursor: Some(s(60)) }];
    assert!(bench.store.raise_cursors(&raise).await.unwrap().is_empty());
    run(&mut editor, "commit").await;
    assert!(bench.store.raise_cursors(&raise).await.unwrap().is_empty());
    assert_eq!(bench.cursor(&job).await, Some(s(20)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_waited_for_an_edit_is_stale() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    let mut editor = opened.connect().await;
    run(&mut editor, &format!("begin; select * from epochs where job = '{}' for update", job.id)).await;
    let (store, plan) = (opened.store.clone(), range(&job, 1, 10, 200));
    let mut writing = tokio::spawn(async move { store.record_range(&lease, &plan).await });
    waits_for_a_lock(&opened, &mut writing).await;
    run(&mut editor, "update epochs set epoch = 2; commit").await;
    assert_eq!(writing.await.unwrap().unwrap(), everytick_store::RangeAnswer::Stale);
}

/// Whether a batch or an edit at the same instant comes first, each tick is recorded once, and none after the pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_edits_and_batches_record_every_tick_once_and_none_after_a_pause() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let job = bench.create(overlapping("j")).await;
    let (mut expected, who) = (0, actor());
    for round in 0..30_i64 {
        let at = round * 20 + 10;
        bench.go(at);
        bench.store.now().await.unwrap();
        let epoch = bench.epoch(&job).await;
        // Ticks of one job are recorded in order, so the tick before this round is included.
        let due = if round % 2 == 0 && round > 0 { vec![at - 10, at] } else { vec![at] };
        let batch = [ticks(&job, epoch, due.iter().map(|at| tick(&job, *at, Fate::Run)).collect())];
        let edit = change("j", if round % 2 == 0 { pause() } else { Change::Resume });
        let (recorded, edited) =
            tokio::join!(bench.store.record(&lease, &batch), bench.store.edit_job(TENANT, &who, edit));
        let (recorded, edited) = (recorded.unwrap().jobs[0][0], edited.unwrap());
        assert_eq!(edited.effective_at, Some(s(at)), "round {round}");
        if round % 2 == 0 {
            // This tick, recorded by the batch or by the pause, and the tick between the last round and this one.
            expected += if round == 0 { 1 } else { 2 };
            assert!(matches!(recorded, RowAnswer::Inserted | RowAnswer::Stale | RowAnswer::Existed), "{recorded:?}");
        } else {
            assert_eq!(recorded, RowAnswer::Stale, "a paused job has no ticks");
        }
        assert_eq!(bench.history(&job).await.len(), expected, "round {round}: {recorded:?}");
    }
    assert!(START < s(1));
    opened.connect().await.close().await.unwrap();
}

/// The state of an asynchronous standby after its promotion: every row except those of the last commit.
#[tokio::test]
async fn a_node_that_knows_an_edit_lost_in_a_promotion_sees_the_next_edit() {
    let opened = bench().await;
    let bench = &opened.bench;
    let job = bench.create(spec("j")).await;
    bench.go(1);
    bench.edit("j", pause()).await;
    let known = bench.store.changes(&bench.all(), ChangeMark::default(), 10).await.unwrap();
    let lost = known.jobs[0].epoch;
    run(
        &mut opened.connect().await,
        "update epochs set epoch = 1, seq = 1; update jobs set version = 1, paused_at = null",
    )
    .await;
    bench.go(2);
    bench.edit("j", pause()).await;
    let seen = bench.store.changes(&bench.all(), known.mark, 10).await.unwrap().jobs;
    assert_eq!(seen.iter().map(|seen| seen.id).collect::<Vec<_>>(), [job.id]);
    assert!(seen[0].epoch > lost, "{} after {lost}", seen[0].epoch);
}
