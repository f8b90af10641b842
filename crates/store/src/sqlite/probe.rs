//! The benchmark operations; see [`Probe`]. They work in a file of their own.

use async_trait::async_trait;
use everytick_domain::time::DbTime;
use sqlx::{AssertSqlSafe, Row as _};

use super::{Failed, SqliteStore};
use crate::{
    Result, StoreError,
    probe::{JobBytes, OpenSnapshot, PlainTick, Probe},
};

const DOING: &str = "measure";

#[async_trait]
impl Probe for SqliteStore {
    async fn begin_limit(&self) -> Result<()> {
        self.end_limit().await?;
        let made: Vec<String> =
            sqlx::query_scalar(sql!("probe/probe_table")).fetch_all(&self.writer).await.failed(DOING)?;
        for text in made {
            let text = text.replace("runs_history", "probe_runs_history").replace(" runs", " probe_runs");
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.writer).await.failed(DOING)?;
        }
        Ok(())
    }

    async fn insert_plainly(&self, ticks: &[PlainTick]) -> Result<()> {
        let row = |tick: &PlainTick| {
            format!("{}{}{}", tick.run.uuid().as_simple(), tick.job.uuid().as_simple(), tick.tick.millis())
        };
        let rows = serde_json::to_string(&ticks.iter().map(row).collect::<Vec<_>>());
        let rows = rows.map_err(|error| StoreError::Failed { doing: DOING, source: error.into() })?;
        let mut write = self.write(DOING).await?;
        write.execute(query!("probe/probe_insert", rows)).await?;
        write.commit().await
    }

    async fn end_limit(&self) -> Result<()> {
        sqlx::raw_sql("drop table if exists probe_runs").execute(&self.writer).await.failed(DOING).map(drop)
    }

    async fn tidy(&self) -> Result<()> {
        sqlx::raw_sql("analyze; pragma wal_checkpoint(truncate)").execute(&self.writer).await.failed(DOING).map(drop)
    }

    async fn job_bytes(&self) -> Result<JobBytes> {
        let row = query!("probe/probe_job_bytes").fetch_one(&self.readers).await.failed(DOING)?;
        let bytes = |column: &str| row.try_get::<i64, _>(column).failed(DOING).map(i64::unsigned_abs);
        Ok(JobBytes { jobs: bytes("jobs")?, audit: bytes("audit")? })
    }

    async fn hold_snapshot(&self) -> Result<OpenSnapshot> {
        let mut read = self.read(DOING).await?;
        sqlx::query("select count(*) from leases").execute(&mut *read).await.failed(DOING)?;
        Ok(OpenSnapshot::new(read))
    }

    async fn forget_runs(&self, until: DbTime) -> Result<()> {
        sqlx::raw_sql(sql!("probe/probe_forget_runs")).execute(&self.writer).await.failed(DOING)?;
        query!("probe/probe_forget_ticks", until.millis()).execute(&self.writer).await.failed(DOING).map(drop)
    }
}
