//! Queues for operators: their depth and their limits. Also polls many queues at once.

use everytick_domain::{
    ids::TenantId,
    queue::{QueueLimits, Rate},
    time::{DbTime, Span},
};
use sqlx::{Row as _, postgres::PgRow};

use super::super::{Failed, PostgresStore, rows};
use crate::tx::Tx as _;
use crate::{Actor, DEPTH_COUNTED_MAX, Page, QueueLook, QueueRecord, Result, queues::limits_detail};

pub(in crate::postgres) fn limits(row: &PgRow) -> std::result::Result<QueueLimits, sqlx::Error> {
    let number = |name| row.try_get::<Option<i32>, _>(name).map(|number| number.map(i32::unsigned_abs));
    let per = row.try_get::<Option<i64>, _>("rate_ms")?.map(|ms| Span::millis(ms.unsigned_abs()));
    let rate = number("rate_count")?.zip(per).map(|(count, per)| Rate { count, per });
    Ok(QueueLimits { concurrency: number("concurrency")?, rate })
}

pub(super) async fn look_at_queues(store: &PostgresStore, queues: &[(TenantId, String)]) -> Result<QueueLook> {
    const DOING: &str = "read the queues";
    let mut read = store.read(DOING).await?;
    let now: i64 = read.scalar(query!("setup/now")).await?;
    let found = read
        .fetch_all(query!(
            "queue/queues_look",
            queues.iter().map(|(tenant, _)| tenant.raw()).collect::<Vec<_>>(),
            queues.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>(),
            now
        ))
        .await?;
    let mut look = QueueLook { now: DbTime::from_millis(now), due: Vec::new(), next_due: None };
    for row in &found {
        if row.try_get("due").failed(DOING)? {
            let tenant = TenantId::from_raw(row.try_get("tenant").failed(DOING)?);
            look.due.push((tenant, row.try_get("name").failed(DOING)?));
        }
        look.next_due = look.next_due.into_iter().chain(rows::time(row, "next_due").failed(DOING)?).min();
    }
    Ok(look)
}

pub(super) async fn list_queues(
    store: &PostgresStore,
    tenant: TenantId,
    from: Option<&str>,
    limit: usize,
) -> Result<Page<QueueRecord, String>> {
    const DOING: &str = "list queues";
    let mut read = store.read(DOING).await?;
    let now: i64 = read.scalar(query!("setup/now")).await?;
    let found = read
        .fetch_all(query!(
            "queue/queues_list",
            tenant.raw(),
            from.unwrap_or_default(),
            rows::limit(limit.saturating_add(1)),
            now,
            rows::limit(DEPTH_COUNTED_MAX)
        ))
        .await?;
    let mut items: Vec<QueueRecord> = store.unreadable.each("queues", &found, record);
    let next = items.split_off(limit.min(items.len())).into_iter().next().map(|queue| queue.name);
    Ok(Page { items, next })
}

fn record(row: &PgRow) -> std::result::Result<QueueRecord, sqlx::Error> {
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
}

pub(super) async fn set_queue(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    limits: QueueLimits,
) -> Result<()> {
    const DOING: &str = "set queue limits";
    let mut write = store.write(DOING).await?;
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    write
        .execute_or_refuse(query!(
            "queue/queues_set",
            tenant.raw(),
            name,
            limits.concurrency.map(number),
            limits.rate.map(|rate| number(rate.count)),
            limits.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX))
        ))
        .await?;
    write.read_clock().await?;
    write.audit(tenant, actor, "limit", &[(format!("queue {name}"), limits_detail(&limits))]).await?;
    write.notify_owners().await?;
    write.commit().await
}
