//! No call waits for ever. The server's own time-outs end what it executes, but where the way to it has gone silent nothing comes
//! back, and sqlx cannot set TCP's. So each call has a limit here: a read that reaches it has failed, a write is unsure.
//! Whatever is dropped in the middle leaves a connection that owes an answer; it is asked for once more, and closed if silent.

use std::time::Duration;

use sqlx::{PgConnection, Row as _};

use super::{PostgresStore, open::PostgresOptions, sql};
use crate::{Result, StoreError};

/// Most calls are a handful of statements, of which one is slow when the server is.
const SLOW_STATEMENTS: u32 = 3;
/// A prune drops days and moves last runs, each under a long time-out of its own; nobody waits for it.
const PRUNE_LIMIT: Duration = Duration::from_mins(30);

#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimit(Duration);

impl CallLimit {
    pub(super) fn of(options: &PostgresOptions) -> Self {
        Self(options.statement_timeout * SLOW_STATEMENTS)
    }
}

const DOING: &str = "hear from the database";
const SILENT: &str = "no answer in time";

impl PostgresStore {
    /// For calls that only read.
    pub(super) async fn reads<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silent = |_| StoreError::Failed { doing: DOING, source: SILENT.into() };
        tokio::time::timeout(self.limit.0, call).await.map_err(silent)?
    }

    /// For calls that write: what was on its way may still land.
    pub(super) async fn writes<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.writes_within(self.limit.0, call).await
    }

    /// For pruning.
    pub(super) async fn slow<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.writes_within(PRUNE_LIMIT, call).await
    }

    async fn writes_within<T>(&self, limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silent = |_| StoreError::Unsure { doing: DOING, source: SILENT.into() };
        tokio::time::timeout(limit, call).await.map_err(silent)?
    }
}

/// Whether a connection that somebody is done with may be used again: it answers within the time, and has no transaction open.
/// sqlx asks too, but waits for ever, and the silent connection would keep its place in the pool; and of a caller who gave up
/// while `begin` was on its way, sqlx does not know that there is something to roll back.
pub(super) async fn is_sound(connection: &mut PgConnection, limit: Duration) -> sqlx::Result<bool> {
    match tokio::time::timeout(limit, sqlx::raw_sql(sql!("in_transaction")).fetch_one(connection)).await {
        Ok(answer) => Ok(!answer?.try_get::<bool, _>("open")?),
        // An error closes the connection without a word more to the other side.
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}
