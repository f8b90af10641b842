//! Audit rows that commit in another order than that of their numbers.

use everytick_domain::audit::Horizon;
use everytick_store::{
    AuditStore as _,
    conformance::{TENANT, pause, spec},
};
use sqlx::Row as _;

use super::bench;

const INSERT: &str =
    "insert into audit (tenant, at, actor, action, subject, detail) values (1, 0, 'late', 'a', 's', '{}') returning id";

#[tokio::test]
async fn a_reader_does_not_pass_a_row_that_commits_late() {
    let opened = bench().await;
    let (mut late, mut other) = (opened.connect().await, opened.connect().await);
    opened.bench.create(spec("j")).await;
    sqlx::raw_sql("begin").execute(&mut late).await.unwrap();
    let id: i64 = sqlx::query(INSERT).fetch_one(&mut late).await.unwrap().get(0);
    // This row has a higher number and is visible before the other.
    opened.bench.edit("j", pause()).await;
    let visible = opened.bench.audit().await.last().unwrap().id;
    assert!(visible > id);

    let mut horizon = Horizon::default();
    let look = opened.store.look_at_audit().await.unwrap();
    assert_eq!((look.given, look.in_progress.len()), (visible, 1));
    assert!(horizon.see(look) < id);
    // Later writers do not matter. A writer is listed before it takes a number.
    sqlx::raw_sql("begin; lock table audit in row exclusive mode").execute(&mut other).await.unwrap();
    assert!(horizon.see(opened.store.look_at_audit().await.unwrap()) < id);
    sqlx::raw_sql("commit").execute(&mut late).await.unwrap();
    let settled = horizon.see(opened.store.look_at_audit().await.unwrap());
    assert_eq!(settled, visible);
    let rows = opened.store.export_audit(Some(TENANT), 0, settled, 10).await.unwrap().items;
    assert!(rows.iter().any(|row| row.id == id), "{rows:?}");
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
}

#[tokio::test]
async fn readers_and_locks_of_other_kinds_do_not_hold_an_export() {
    let opened = bench().await;
    opened.bench.create(spec("j")).await;
    let mut dump = opened.connect().await;
    sqlx::raw_sql("begin; lock table audit in access share mode; select 1 from audit")
        .execute(&mut dump)
        .await
        .unwrap();
    assert!(opened.store.look_at_audit().await.unwrap().in_progress.is_empty());
    let written = sqlx::query(INSERT).fetch_one(&mut opened.connect().await).await.unwrap().get::<i64, _>(0);
    assert_eq!(opened.store.look_at_audit().await.unwrap().given, written);
}
