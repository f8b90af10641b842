//! Raises cursors over ticks that are known to be recorded. Never lowers one.

use std::collections::HashSet;

use everytick_domain::ids::JobId;
use sqlx::Row as _;
use uuid::Uuid;

use super::{Failed, PostgresStore, rows, sql};
use crate::{Raise, Result};

pub(super) async fn raise_cursors(store: &PostgresStore, raises: &[Raise]) -> Result<Vec<JobId>> {
    const DOING: &str = "raise cursors";
    if raises.is_empty() {
        return Ok(Vec::new());
    }
    let mut sorted: Vec<&Raise> = raises.iter().collect();
    sorted.sort_by_key(|raise| raise.job);
    let mut write = store.write_batch(DOING).await?;
    let row = sqlx::query(sql!("raise_cursors"))
        .bind(rows::job_ids(sorted.iter().map(|raise| raise.job)))
        .bind(sorted.iter().map(|raise| raise.epoch.raw()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|raise| rows::or_none(raise.cursor)).collect::<Vec<_>>())
        .fetch_one(&mut *write.tx)
        .await
        .failed(DOING)?;
    let held: Option<Vec<Uuid>> = row.try_get("jobs").failed(DOING)?;
    write.commit().await?;
    let raised = raises.iter().map(|raise| raise.job);
    let Some(held) = held else { return Ok(raised.collect()) };
    let held: HashSet<Uuid> = held.into_iter().collect();
    Ok(raised.filter(|job| held.contains(&job.uuid())).collect())
}
