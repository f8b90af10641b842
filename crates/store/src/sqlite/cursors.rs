//! Raises cursors over ticks that are known to be recorded. Never lowers one.

use everytick_domain::{ids::JobId, time::DbTime};
use uuid::Uuid;

use super::{SqliteStore, rows, rows::Hex};
use crate::{Raise, Result};

pub(super) async fn raise_cursors(store: &SqliteStore, raises: &[Raise]) -> Result<Vec<JobId>> {
    const DOING: &str = "raise cursors";
    let asked: Vec<_> = raises
        .iter()
        .map(|raise| (Hex(raise.job.uuid()), raise.epoch.raw(), raise.cursor.map(DbTime::millis)))
        .collect();
    let asked = rows::json(&asked);
    let mut write = store.write(DOING).await?;
    let raised = write.execute(query!("cursors/raise_cursors", &asked)).await?;
    let jobs = if raised == raises.len() as u64 {
        raises.iter().map(|raise| raise.job).collect()
    } else {
        let found: Vec<Uuid> = write.scalars(query!("cursors/raised_cursors", &asked)).await?;
        found.into_iter().map(JobId::from_uuid).collect()
    };
    write.commit().await?;
    Ok(jobs)
}
