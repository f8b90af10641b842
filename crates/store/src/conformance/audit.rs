//! Exports of the audit trail, and the position of its stream.

use everytick_domain::{audit::Horizon, edit::Change, time::Span};

use super::{Bench, OTHER_TENANT, START, TENANT, pause, spec};
use crate::{Actor, AuditRecord};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_audit {
    ($open:path) => {
        $crate::conformance_group! { $open, audit:
            the_audit_trail_is_exported_in_the_order_of_its_numbers,
            an_export_has_the_rows_of_one_tenant_or_of_all,
            an_export_ends_at_its_last_number,
            numbers_are_not_given_again_after_pruning,
            the_position_of_the_stream_only_increases,
        }
    };
}

/// The numbers and actions of the exported rows, and the number of rows on each page.
async fn exported(bench: &Bench, after: i64, through: i64, limit: usize) -> (Vec<AuditRecord>, Vec<usize>) {
    let (mut rows, mut sizes, mut after) = (Vec::new(), Vec::new(), after);
    loop {
        let page = bench.store.export_audit(Some(TENANT), after, through, limit).await.unwrap();
        sizes.push(page.items.len());
        rows.extend(page.items);
        match page.next {
            Some(next) => after = next,
            None => return (rows, sizes),
        }
    }
}

async fn settled(bench: &Bench) -> i64 {
    Horizon::default().see(bench.store.look_at_audit().await.unwrap())
}

async fn three_rows(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.edit("j", pause()).await;
    bench.edit("j", Change::Resume).await;
}

pub async fn the_audit_trail_is_exported_in_the_order_of_its_numbers(bench: &Bench) {
    assert_eq!(settled(bench).await, 0);
    assert!(exported(bench, 0, i64::MAX, 10).await.0.is_empty());
    three_rows(bench).await;
    let through = settled(bench).await;
    let (rows, sizes) = exported(bench, 0, through, 2).await;
    assert_eq!(rows.iter().map(|row| row.action.as_str()).collect::<Vec<_>>(), ["create", "pause", "resume"]);
    assert!(rows.is_sorted_by(|a, b| a.id < b.id) && rows[2].id == through, "{rows:?}");
    assert_eq!(sizes, [2, 1]);
    assert_eq!(exported(bench, rows[0].id, through, 10).await.0.len(), 2, "from after the first row");
    assert!(exported(bench, through, through, 10).await.0.is_empty());
}

pub async fn an_export_has_the_rows_of_one_tenant_or_of_all(bench: &Bench) {
    three_rows(bench).await;
    bench.store.note_denied(OTHER_TENANT, &Actor::local("b"), "denied", "GET /", "{}").await.unwrap();
    let through = settled(bench).await;
    let count = async |tenant| bench.store.export_audit(tenant, 0, through, 10).await.unwrap().items.len();
    assert_eq!((count(Some(TENANT)).await, count(Some(OTHER_TENANT)).await, count(None).await), (3, 1, 4));
}

pub async fn an_export_ends_at_its_last_number(bench: &Bench) {
    three_rows(bench).await;
    let through = settled(bench).await - 1;
    let (rows, sizes) = exported(bench, 0, through, 2).await;
    assert_eq!((rows.len(), rows[1].id, sizes), (2, through, vec![2]));
}

pub async fn numbers_are_not_given_again_after_pruning(bench: &Bench) {
    three_rows(bench).await;
    let through = settled(bench).await;
    assert_eq!(bench.store.prune_audit(START.plus(Span::days(1)), 10).await.unwrap(), 3);
    assert_eq!(settled(bench).await, through);
    bench.edit("j", pause()).await;
    assert!(exported(bench, through, i64::MAX, 10).await.0[0].id > through);
}

pub async fn the_position_of_the_stream_only_increases(bench: &Bench) {
    assert_eq!(bench.store.audit_sent().await.unwrap(), 0);
    for (through, stored) in [(9, 9), (100, 100), (20, 100), (101, 101)] {
        bench.store.set_audit_sent(through).await.unwrap();
        assert_eq!(bench.store.audit_sent().await.unwrap(), stored);
    }
}
