//! Raises cursors over ticks that are known to be recorded. Never lowers one.

use std::collections::HashSet;

use everytick_domain::ids::JobId;
use sqlx::Row as _;
use uuid::Uuid;

use super::{Failed, PostgresStore, is_locked, rows};
use crate::{Raise, Result};

const DOING: &str = "raise cursors";

pub(super) async fn raise_cursors(store: &PostgresStore, raises: &[Raise]) -> Result<Vec<JobId>> {
    if raises.is_empty() {
        return Ok(Vec::new());
    }
    match raise(store, raises, sql!("cursors/raise_cursors")).await {
        Err(error) if is_locked(&error) => raise(store, raises, sql!("cursors/raise_cursors_free")).await,
        raised => raised,
    }
}

async fn raise(store: &PostgresStore, raises: &[Raise], statement: &'static str) -> Result<Vec<JobId>> {
    let mut sorted: Vec<&Raise> = raises.iter().collect();
    sorted.sort_by_key(|raise| raise.job);
    let mut write = store.write_brief(DOING).await?;
    let row = sqlx::query(statement)
        .bind(rows::job_ids(sorted.iter().map(|raise| raise.job)))
        .bind(sorted.iter().map(|raise| raise.epoch.raw()).collect::<Vec<_>>())
        .bind(sorted.iter().map(|raise| rows::or_none(raise.cursor)).collect::<Vec<_>>())
        .bind(store.zone_data)
        .fetch_one(&mut *write.tx)
        .await
        .failed(DOING);
    // Rolled back before a repeat on another connection, which skips locked rows.
    let unchanged: Option<Vec<Uuid>> = write.finish(row).await?.try_get("jobs").failed(DOING)?;
    let raised = raises.iter().map(|raise| raise.job);
    let Some(unchanged) = unchanged else { return Ok(raised.collect()) };
    let unchanged: HashSet<Uuid> = unchanged.into_iter().collect();
    Ok(raised.filter(|job| unchanged.contains(&job.uuid())).collect())
}

#[cfg(test)]
mod tests {

    /// The statement without its comment.
    fn body(text: &'static str) -> String {
        text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_statement_that_skips_locked_cursors_has_the_same_guards() {
        let locks =
            "     cross join lateral (select 1 from cursors c where c.job = p.job for update of c skip locked) c\n";
        let free = body(sql!("cursors/raise_cursors_free"));
        assert!(free.contains(locks));
        assert_eq!(free.replace(locks, ""), body(sql!("cursors/raise_cursors")));
    }
}
