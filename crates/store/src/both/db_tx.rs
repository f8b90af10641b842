//! One transaction of a store, and its statements. A statement is written as `query!("table/name", values)` and executed
//! by a method of [`DbTx`], which maps its error: before the commit, an error means that nothing was done.

use std::sync::atomic::Ordering;

use everytick_domain::ids::RunId;
use sqlx::{FromRow, Row as _};

use super::{Db, DbRow, DbTx, commit_error, is_refusal};
use crate::{Result, StoreError, unreadable::is_undecodable};

/// A statement from its file, with the values of its parameters in order.
macro_rules! query {
    ($name:literal $(, $value:expr)* $(,)?) => {
        sqlx::query(sql!($name))$(.bind($value))*
    };
}

pub(super) type Query<'q> = sqlx::query::Query<'q, Db, <Db as sqlx::Database>::Arguments>;

impl DbTx {
    /// Executes a statement. Returns the number of rows that it wrote.
    pub(super) async fn execute(&mut self, query: Query<'_>) -> Result<u64> {
        Ok(query.execute(&mut *self.tx).await.failed(self.doing)?.rows_affected())
    }

    /// The same, but an error caused by the data becomes `Refused`: a repeat would fail too.
    pub(super) async fn execute_or_refuse(&mut self, query: Query<'_>) -> Result<u64> {
        Ok(query.execute(&mut *self.tx).await.failed_or_refused(self.doing)?.rows_affected())
    }

    pub(super) async fn fetch_all(&mut self, query: Query<'_>) -> Result<Vec<DbRow>> {
        query.fetch_all(&mut *self.tx).await.failed(self.doing)
    }
    pub(super) async fn fetch_one(&mut self, query: Query<'_>) -> Result<DbRow> {
        query.fetch_one(&mut *self.tx).await.failed(self.doing)
    }
    pub(super) async fn fetch_optional(&mut self, query: Query<'_>) -> Result<Option<DbRow>> {
        query.fetch_optional(&mut *self.tx).await.failed(self.doing)
    }

    /// The rows as tuples.
    pub(super) async fn fetch_all_as<T: Tuple>(&mut self, query: Query<'_>) -> Result<Vec<T>> {
        query.try_map(|row: DbRow| T::from_row(&row)).fetch_all(&mut *self.tx).await.failed(self.doing)
    }
    pub(super) async fn fetch_one_as<T: Tuple>(&mut self, query: Query<'_>) -> Result<T> {
        query.try_map(|row: DbRow| T::from_row(&row)).fetch_one(&mut *self.tx).await.failed(self.doing)
    }
    pub(super) async fn fetch_optional_as<T: Tuple>(&mut self, query: Query<'_>) -> Result<Option<T>> {
        query.try_map(|row: DbRow| T::from_row(&row)).fetch_optional(&mut *self.tx).await.failed(self.doing)
    }

    /// Decodes all rows. Fails if one cannot be decoded.
    pub(super) fn decode_all<T>(&self, rows: &[DbRow], decode: impl Fn(&DbRow) -> sqlx::Result<T>) -> Result<Vec<T>> {
        rows.iter().map(decode).collect::<sqlx::Result<_>>().failed(self.doing)
    }

    /// The first column of each row.
    pub(super) async fn scalars<T>(&mut self, query: Query<'_>) -> Result<Vec<T>>
    where
        (T,): Tuple,
    {
        let found: Vec<(T,)> = self.fetch_all_as(query).await?;
        Ok(found.into_iter().map(|(value,)| value).collect())
    }
    /// The first column of the row.
    pub(super) async fn scalar<T>(&mut self, query: Query<'_>) -> Result<T>
    where
        (T,): Tuple,
    {
        self.fetch_one_as::<(T,)>(query).await.map(|(value,)| value)
    }
    pub(super) async fn optional_scalar<T>(&mut self, query: Query<'_>) -> Result<Option<T>>
    where
        (T,): Tuple,
    {
        Ok(self.fetch_optional_as::<(T,)>(query).await?.map(|(value,)| value))
    }

    /// The runs in the first column.
    pub(super) async fn run_ids(&mut self, query: Query<'_>) -> Result<Vec<RunId>> {
        Ok(self.scalars(query).await?.into_iter().map(RunId::from_uuid).collect())
    }
    /// The same for a statement that writes: an error caused by the data becomes `Refused`.
    pub(super) async fn written_runs(&mut self, query: Query<'_>) -> Result<Vec<RunId>> {
        let found = query.fetch_all(&mut *self.tx).await.failed_or_refused(self.doing)?;
        found.iter().map(|row| row.try_get(0).map(RunId::from_uuid)).collect::<sqlx::Result<_>>().failed(self.doing)
    }

    /// The decoded rows. All of them must be readable.
    pub(super) async fn fetch_decoded<T, C: FromIterator<T>>(
        &mut self,
        query: Query<'_>,
        decode: fn(&DbRow) -> sqlx::Result<T>,
    ) -> Result<C> {
        self.fetch_all(query).await?.iter().map(decode).collect::<sqlx::Result<C>>().failed(self.doing)
    }

    /// Commits, or on an error rolls back at once: a dropped transaction would keep its locks until the pool rolls it
    /// back.
    pub(super) async fn finish<T>(self, done: Result<T>) -> Result<T> {
        match done {
            Ok(done) => {
                self.commit().await?;
                Ok(done)
            }
            Err(error) => {
                self.rollback().await;
                Err(error)
            }
        }
    }

    /// Rolls back. If that fails, the connection is lost, and the database rolls back by itself.
    pub(super) async fn rollback(self) {
        if let Err(error) = self.tx.rollback().await {
            tracing::debug!(error = %error, doing = self.doing, "could not roll back");
        }
    }

    pub(super) async fn commit(self) -> Result<()> {
        let committed = self.tx.commit().await;
        // Set also if the commit's outcome is unknown: an unneeded check costs little.
        self.steps.fetch_or(self.left_steps, Ordering::AcqRel);
        committed.map_err(|error| commit_error(error, self.doing))
    }
}

/// A row as a tuple of its columns.
pub(super) trait Tuple: for<'r> FromRow<'r, DbRow> + Send + Unpin {}
impl<T: for<'r> FromRow<'r, DbRow> + Send + Unpin> Tuple for T {}

pub(super) trait Failed<T> {
    /// Maps an error before the commit: the transaction rolls back, so nothing was done.
    fn failed(self, doing: &'static str) -> Result<T>;
    /// The same, but an error caused by the data becomes `Refused`: a repeat would fail too.
    fn failed_or_refused(self, doing: &'static str) -> Result<T>;
}

impl<T> Failed<T> for std::result::Result<T, sqlx::Error> {
    fn failed(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| failed(source, doing))
    }
    fn failed_or_refused(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| refused(source, doing))
    }
}

/// The error of a statement that writes: `Refused` if the data caused it.
pub(super) fn refused(source: sqlx::Error, doing: &'static str) -> StoreError {
    match source {
        source if is_refusal(&source) => StoreError::Refused { doing, source: source.into() },
        source => failed(source, doing),
    }
}

fn failed(source: sqlx::Error, doing: &'static str) -> StoreError {
    if is_undecodable(&source) {
        StoreError::Unreadable { doing, source: source.into() }
    } else {
        StoreError::Failed { doing, source: source.into() }
    }
}
