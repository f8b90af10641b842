//! Raises cursors over ticks that are known to be recorded. Never lowers one.

use std::collections::HashSet;

use everytick_domain::{ids::JobId, time::DbTime};
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
    let mut write = store.write(DOING).await?;
    let held: Vec<Uuid> = sqlx::query_scalar(sql!("raise_cursors"))
        .bind(rows::job_ids(sorted.iter().map(|raise| raise.job)))
        .bind(sorted.iter().map(|raise| raise.epoch.raw()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|raise| raise.cursor.map(DbTime::millis)).collect::<Vec<_>>())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    let held: HashSet<Uuid> = held.into_iter().collect();
    Ok(raises.iter().map(|raise| raise.job).filter(|job| held.contains(&job.uuid())).collect())
}
