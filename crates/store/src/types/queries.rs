//! Queries of users: filters, pages and records.

use everytick_domain::{
    flow::FlowState,
    ids::{IdPrefix, JobId, RunId, TokenId},
    job::Job,
    run::{CauseKind, State},
    time::{DbTime, Span},
};
use uuid::Uuid;

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
    /// The names of the jobs that depend on it. Not in lists.
    pub followers: Vec<String>,
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
    /// One of these, or any if empty.
    pub states: Vec<State>,
    /// One of these, or any if empty.
    pub causes: Vec<CauseKind>,
    /// Only runs of this flow.
    pub flow: Option<RunId>,
    /// Every `key` or `key=value` must match a label of the run's job.
    pub labels: Vec<(String, Option<String>)>,
    /// Only ids that begin like this.
    pub ids: Option<IdPrefix>,
}

impl RunFilter {
    /// The ids that a list reads: from the first up to but not including the second, which is `None` if there is no limit.
    /// All runs of a flow have the instant of the flow in their ids.
    #[must_use]
    pub fn bounds(&self, before: Option<RunId>) -> (RunId, Option<RunId>) {
        let flow = self.flow.map(RunId::time);
        let low = self.from.into_iter().chain(flow).max().map(RunId::floor);
        let low = low.into_iter().chain(self.ids.map(|ids| RunId::from_uuid(ids.low()))).max();
        let past = self.to.into_iter().chain(flow.map(|at| at.plus(Span::millis(1)))).min().map(RunId::floor);
        let beyond = self.ids.and_then(|ids| ids.high().as_u128().checked_add(1));
        let beyond = beyond.map(|next| RunId::from_uuid(Uuid::from_u128(next)));
        (low.unwrap_or(RunId::floor(DbTime::EPOCH)), past.into_iter().chain(beyond).chain(before).min())
    }

    /// Whether skipped ranges may match. A range is recorded for ticks and belongs to no flow.
    #[must_use]
    pub fn allows_ranges(&self) -> bool {
        let state = self.states.is_empty() || self.states.contains(&State::Skipped);
        let cause = self.causes.is_empty() || self.causes.contains(&CauseKind::Tick);
        state && cause && self.flow.is_none()
    }

    /// Whether it selects by more than job, time and state.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        !self.causes.is_empty() || self.flow.is_some() || !self.labels.is_empty()
    }
}

/// Which flows a list returns.
#[derive(Clone, Debug, Default)]
pub struct FlowFilter {
    /// At or after this instant...
    pub from: Option<DbTime>,
    /// ...and before this one.
    pub to: Option<DbTime>,
    /// One of these, or any if empty.
    pub states: Vec<FlowState>,
    /// Only ids that begin like this.
    pub ids: Option<IdPrefix>,
}

impl FlowFilter {
    /// As [`RunFilter::bounds`].
    #[must_use]
    pub fn bounds(&self, before: Option<RunId>) -> (RunId, Option<RunId>) {
        RunFilter { from: self.from, to: self.to, ids: self.ids, ..RunFilter::default() }.bounds(before)
    }
}

/// Which rows of the audit trail a list returns.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    /// The word of an [`crate::AuditResult`].
    pub result: Option<String>,
    /// One of these, or any if empty.
    pub subjects: Vec<String>,
    /// At or after this instant...
    pub from: Option<DbTime>,
    /// ...and before this one.
    pub to: Option<DbTime>,
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
    /// The word of an [`crate::ActorKind`]; "local" in rows of earlier releases.
    pub actor_kind: String,
    pub token: Option<TokenId>,
    pub ip: Option<String>,
    pub request: Option<String>,
    pub action: String,
    pub subject: String,
    /// The word of an [`crate::AuditResult`].
    pub result: String,
    pub detail: String,
}
