//! Queues for operators: their depth and their limits. Also polls many queues at once.

use everytick_domain::{
    ids::TenantId,
    queue::{QueueLimits, Rate},
    time::Span,
};
use sqlx::{Row as _, sqlite::SqliteRow};

use super::super::{Failed, SqliteStore, rows};
use crate::tx::Tx as _;
use crate::{Actor, DEPTH_COUNTED_MAX, Page, QueueLook, QueueRecord, Result, queues::limits_detail};

pub(in crate::sqlite) fn limits(row: &SqliteRow) -> std::result::Result<QueueLimits, sqlx::Error> {
    let per = row.try_get::<Option<i64>, _>("rate_ms")?.map(|ms| Span::millis(ms.unsigned_abs()));
    let rate = row.try_get::<Option<u32>, _>("rate_count")?.zip(per).map(|(count, per)| Rate { count, per });
    Ok(QueueLimits { concurrency: row.try_get("concurrency")?, rate })
}

pub(super) async fn look_at_queues(store: &SqliteStore, queues: &[(TenantId, String)]) -> Result<QueueLook> {
    const DOING: &str = "read the queues";
    let mut read = store.read(DOING).await?;
    let now = store.clock.now();
    let asked: Vec<_> = queues.iter().map(|(tenant, name)| (tenant.raw(), name)).collect();
    let found = read.fetch_all(query!("queue/queues_look", rows::json(&asked), now.millis())).await?;
    let mut look = QueueLook { now, due: Vec::new(), next_due: None };
    for row in &found {
        if row.try_get("due").failed(DOING)? {
            look.due.push((rows::tenant(row).failed(DOING)?, row.try_get("name").failed(DOING)?));
        }
        look.next_due = look.next_due.into_iter().chain(rows::time(row, "next_due").failed(DOING)?).min();
    }
    Ok(look)
}

pub(super) async fn list_queues(
    store: &SqliteStore,
    tenant: TenantId,
    from: Option<&str>,
    limit: usize,
) -> Result<Page<QueueRecord, String>> {
    const DOING: &str = "list queues";
    let mut read = store.read(DOING).await?;
    let found = read
        .fetch_all(query!(
            "queue/queues_list",
            tenant.raw(),
            from.unwrap_or_default(),
            rows::limit(limit.saturating_add(1)),
            store.clock.now().millis(),
            rows::limit(DEPTH_COUNTED_MAX)
        ))
        .await?;
    let record = |row: &SqliteRow| {
        let count = |name| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
        Ok(QueueRecord {
            name: row.try_get("name")?,
            limits: limits(row)?,
            due: count("due")?,
            later: count("later")?,
            oldest: rows::time(row, "oldest")?,
            claimed: count("claimed")?,
            asked_at: rows::time(row, "asked_at")?,
        })
    };
    let mut items: Vec<QueueRecord> = store.unreadable.each("queues", &found, record);
    let next = items.split_off(limit.min(items.len())).into_iter().next().map(|queue| queue.name);
    Ok(Page { items, next })
}

pub(super) async fn set_queue(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    limits: QueueLimits,
) -> Result<()> {
    const DOING: &str = "set queue limits";
    let mut write = store.write(DOING).await?;
    write
        .execute_or_refuse(query!(
            "queue/queues_set",
            tenant.raw(),
            name,
            limits.concurrency,
            limits.rate.map(|rate| rate.count),
            limits.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX))
        ))
        .await?;
    write.audit(tenant, actor, "limit", &[(format!("queue {name}"), limits_detail(&limits))]).await?;
    write.commit().await
}
