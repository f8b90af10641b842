//! Limits the time of each call. The server's timeouts end what it executes, but if the network goes silent, no answer
//! comes back, and sqlx cannot set TCP timeouts. A read that reaches its limit has failed; a write is unsure. A dropped
//! call leaves a connection with an answer not yet read. It is probed once more, and closed if it stays silent.

use std::time::Duration;

use sqlx::{PgConnection, Row as _};

use super::{PostgresStore, open::PostgresOptions};
use crate::{Result, StoreError};

/// The limit of a call, in statement timeouts. A call may have more statements, but even on a slow server few of them take
/// nearly that long.
const SLOW_STATEMENTS: u32 = 3;
/// A prune drops days and moves last runs, each under a long timeout of its own. No caller waits for it.
const PRUNE_LIMIT: Duration = Duration::from_mins(30);

#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimit(Duration);

impl CallLimit {
    pub(super) fn of(options: &PostgresOptions) -> Self {
        Self(options.statement_timeout * SLOW_STATEMENTS)
    }
}

const DOING: &str = "get an answer from the database";
const SILENT: &str = "no answer in time";

impl PostgresStore {
    /// For read-only calls.
    pub(super) async fn reads<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silent = |_| StoreError::Failed { doing: DOING, source: SILENT.into() };
        tokio::time::timeout(self.limit.0, call).await.map_err(silent)?
    }

    /// For calls that write: a statement already sent may still take effect.
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

/// Whether a returned connection may be used again: it answers within the limit, and has no open transaction. sqlx
/// probes too, but without a timeout, so a silent connection would occupy its slot in the pool. And if a caller gave up
/// while `begin` was in flight, sqlx does not know that it must roll back.
pub(super) async fn is_sound(connection: &mut PgConnection, limit: Duration) -> sqlx::Result<bool> {
    match tokio::time::timeout(limit, sqlx::raw_sql(sql!("setup/in_transaction")).fetch_one(connection)).await {
        Ok(answer) => Ok(!answer?.try_get::<bool, _>("open")?),
        // An error closes the connection without further messages to the server.
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}
