//! The benchmark operations; see [`Probe`]. They work in a schema of their own.

use async_trait::async_trait;
use everytick_domain::time::DbTime;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _};

use super::{Failed, PostgresStore, open, rows};
use crate::{
    Result, StoreError,
    probe::{BENCH_PLACE, JobBytes, OpenSnapshot, PlainTick, Probe},
};

const DOING: &str = "measure";

impl PostgresStore {
    /// Creates an empty schema in the database, and returns a URL that uses it.
    pub async fn make_schema(url: &str, schema: &str) -> Result<String> {
        alone(url, format!("create schema {}", name(schema)?)).await?;
        let join = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{join}options=-csearch_path%3D{schema}"))
    }

    /// Removes the schema and everything in it.
    pub async fn drop_schema(url: &str, schema: &str) -> Result<()> {
        alone(url, format!("drop schema if exists {} cascade", name(schema)?)).await
    }
}

/// It becomes part of a statement, so it must be a plain word.
fn name(schema: &str) -> Result<&str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if schema.is_empty() || schema.len() > 60 || !schema.bytes().all(plain) {
        return Err(StoreError::Unusable(format!("{schema:?} is not a plain name for a schema")));
    }
    Ok(schema)
}

async fn alone(url: &str, text: String) -> Result<()> {
    let mut connection: PgConnection = open::first(&open::parse(url)?).await?;
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.failed(DOING)?;
    connection.close().await.failed(DOING)
}

/// Outside a transaction, so that none of our timeouts applies to long statements.
async fn raw(pool: &PgPool, text: &'static str) -> Result<()> {
    sqlx::raw_sql(text).execute(pool).await.failed(DOING).map(drop)
}

#[async_trait]
impl Probe for PostgresStore {
    async fn begin_limit(&self) -> Result<()> {
        raw(&self.pool, sql!("probe/probe_limit_begin")).await
    }

    async fn insert_plainly(&self, ticks: &[PlainTick]) -> Result<()> {
        query!(
            "probe/probe_insert",
            rows::run_ids(ticks.iter().map(|tick| tick.run)),
            rows::job_ids(ticks.iter().map(|tick| tick.job)),
            ticks.iter().map(|tick| tick.tick.millis()).collect::<Vec<_>>()
        )
        .execute(&self.pool)
        .await
        .failed(DOING)
        .map(drop)
    }

    async fn end_limit(&self) -> Result<()> {
        raw(&self.pool, sql!("probe/probe_limit_end")).await
    }

    async fn tidy(&self) -> Result<()> {
        for table in ["jobs", "epochs", "cursors", "runs", "waiting", "audit", "leases", "partitions"] {
            let text = format!("vacuum (analyze) {table}");
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool).await.failed(DOING)?;
        }
        // The role may lack the privilege. Without a checkpoint, earlier writes fall into the measurement.
        let _ = sqlx::raw_sql("checkpoint").execute(&self.pool).await;
        Ok(())
    }

    async fn job_bytes(&self) -> Result<JobBytes> {
        let row = sqlx::raw_sql(sql!("probe/probe_job_bytes")).fetch_one(&self.pool).await.failed(DOING)?;
        let bytes = |column: &str| row.try_get::<i64, _>(column).failed(DOING).map(i64::unsigned_abs);
        Ok(JobBytes { jobs: bytes("jobs")?, audit: bytes("audit")? })
    }

    async fn hold_snapshot(&self) -> Result<OpenSnapshot> {
        let mut connection = self.pool.acquire().await.failed(DOING)?.detach();
        sqlx::raw_sql(sql!("probe/probe_snapshot")).execute(&mut connection).await.failed(DOING)?;
        Ok(OpenSnapshot::new(connection))
    }

    async fn forget_runs(&self, until: DbTime) -> Result<()> {
        let schema: String =
            sqlx::query_scalar(sql!("probe/probe_schema")).fetch_one(&self.pool).await.failed(DOING)?;
        if !schema.starts_with(BENCH_PLACE) {
            return Err(StoreError::Unusable(format!(
                "{schema:?} is not a benchmark's own schema; nothing is removed there"
            )));
        }
        raw(&self.pool, sql!("probe/probe_forget_runs")).await?;
        query!("probe/probe_forget_ticks", until.millis()).execute(&self.pool).await.failed(DOING).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn only_a_plain_word_is_accepted_as_a_schema_name() {
        assert!(name("everytick_bench_0a").is_ok());
        for wrong in ["", "a b", "a;drop", "A", "ä"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
