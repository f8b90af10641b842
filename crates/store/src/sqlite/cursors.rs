//! Raises cursors over ticks that are known to be recorded. Never lowers one.

use everytick_domain::{ids::JobId, time::DbTime};
use uuid::Uuid;

use super::{Failed, SqliteStore, rows, rows::Hex, sql};
use crate::{Raise, Result};

pub(super) async fn raise_cursors(store: &SqliteStore, raises: &[Raise]) -> Result<Vec<JobId>> {
    const DOING: &str = "raise cursors";
    let asked: Vec<_> = raises
        .iter()
        .map(|raise| (Hex(raise.job.uuid()), raise.epoch.raw(), raise.cursor.map(DbTime::millis)))
        .collect();
    let asked = rows::json(&asked).failed(DOING)?;
    let mut write = store.write(DOING).await?;
    let raised = sqlx::query(sql!("cursors/raise_cursors"))
        .bind(asked.as_str())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?
        .rows_affected();
    let jobs = if raised == raises.len() as u64 {
        raises.iter().map(|raise| raise.job).collect()
    } else {
        let found: Vec<Uuid> = sqlx::query_scalar(sql!("cursors/raised_cursors"))
            .bind(asked.as_str())
            .fetch_all(&mut *write.tx)
            .await
            .failed(DOING)?;
        found.into_iter().map(JobId::from_uuid).collect()
    };
    write.commit().await?;
    Ok(jobs)
}
