//! Queries of users: filters, pages and records.

use everytick_domain::{ids::JobId, job::Job, run::State, time::DbTime};

use super::{BacklogWork, RunRecord};

#[derive(Clone, Debug)]
pub struct JobRecord {
    pub job: Job,
    pub cursor: Option<DbTime>,
    pub last_run: Option<RunRecord>,
    /// The database clock when the job was read. The next tick is computed from it.
    pub now: DbTime,
    /// Not in lists.
    pub backlog: Option<BacklogWork>,
}

#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub enabled: Option<bool>,
    pub paused: Option<bool>,
    /// `http`, `shell` or `queue`.
    pub target: Option<String>,
    /// Every `key` or `key=value` must match.
    pub labels: Vec<(String, Option<String>)>,
    /// A part of the name or the description, in any case.
    pub q: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub job: Option<JobId>,
    /// Scheduled at or after this instant...
    pub from: Option<DbTime>,
    /// ...and before this one.
    pub to: Option<DbTime>,
    pub states: Vec<State>,
}

/// A page of a list reads definitions and texts up to this size, and at most one item beyond it. Pages of runs need no
/// such limit: 1,000 runs without their outputs are smaller.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A page: runs newest first, jobs by name. `next` is the position of the next page. A page that reached a read limit
/// has fewer items than requested, perhaps none, and a `next`.
#[derive(Clone, Debug)]
pub struct Page<T, K> {
    pub items: Vec<T>,
    pub next: Option<K>,
}

impl<T, C> Page<T, C> {
    /// The first `limit` items, and the position after the last of them if there are more.
    pub fn cut(mut items: Vec<T>, limit: usize, position: impl Fn(&T) -> C) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(position);
        Self { items, next }
    }
}

#[derive(Clone, Debug)]
pub struct AuditRecord {
    pub id: i64,
    pub at: DbTime,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub detail: String,
}
