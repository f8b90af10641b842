//! The database layer: jobs, ticks and runs in PostgreSQL or SQLite. [`Store`] is a list of transactions, not of
//! statements. Each transaction is atomic and checks its own guards (lease, epoch, clock, fence) where it commits. It
//! takes no decisions; the domain does.

#![allow(clippy::duplicate_mod, reason = "a file in `both/` is a module of `postgres` and of `sqlite`")]

mod announced;
mod backfills;
// For rustfmt only: each database includes these modules.
#[cfg(false)]
mod both;
#[cfg(false)]
#[path = "both/queue/mod.rs"]
mod both_queue;
mod calendars;
mod cancels;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod crons;
mod error;
mod facts;
mod failures;
mod flows;
mod gate;
mod migrations;
mod moving;
mod postgres;
mod probe;
mod queues;
mod redrives;
mod secrets;
pub mod shared;
mod sqlite;
mod statement;
mod tenants;
mod tokens;
pub mod tx;
mod types;
mod unreadable;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::{Facts, Question, RunFacts},
    ids::{BackfillId, Fence, IdPrefix, Incarnation, JobId, RunId, TenantId, Version},
    partition::PartitionSet,
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};

pub use announced::ANNOUNCED_WITHIN;
pub use backfills::{
    BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, EndedRuns, NewBackfill,
};
pub use calendars::{CalendarPut, CalendarRecord, PutCalendar};
pub use cancels::{CancelledJob, CancelledRuns, KeptOutput, Supersede};
pub use clock::{ManualClock, SystemClock, WallClock};
pub use error::{Result, Source, StoreError};
pub use flows::{Advanced, CancelledFlow, FlowNode, FlowRecord, FlowStore, NodeRun, RerunFlow, SkippedChild};
pub use gate::API_WAIT_MAX;
pub use moving::{Move, MoveBatch, MoveMark, MovePlan, MoveStep, MovedTable, UndoTarget};
pub use postgres::{Announced, JobHints, PostgresOptions, PostgresStore};
pub use probe::{BENCH_PLACE, JobBytes, OpenSnapshot, PlainTick, Probe};
pub use queues::*;
pub use redrives::{Redrive, Redriven, RedrivenRun};
pub use secrets::{
    KeyMark, KeyRecord, PutSecret, Rewrap, SECRET_USERS_NAMED_MAX, SealedValue, SecretPut, SecretRecord, SecretStore,
    StoredSecret, ValuePlace,
};
pub use sqlite::SqliteStore;
pub use tenants::{
    NO_RULES, NewTenant, TenantChange, TenantJob, TenantNow, TenantQuotas, TenantRecord, TenantRef, TenantStore,
};
pub use tokens::{
    Creator, ENDED_TOKENS_KEPT, NewToken, TokenKey, TokenOwner, TokenRecord, TokenStore, USE_NOTED_EVERY,
};
pub use types::*;
pub use unreadable::{UNREADABLE_KEPT, UNREADABLE_NOTED_MAX, UnreadableRow, UnreadableRows};

/// A store that any number of nodes may share. `Failed` means known not to be committed; `Unsure` means it may have
/// been committed.
#[async_trait]
pub trait Store: QueueStore + BackfillStore + FlowStore + TokenStore + SecretStore + TenantStore {
    // Nodes, leases and partitions.

    /// The number of partitions of this store. `home::Homes::place` chooses the partition of a job.
    fn partitions(&self) -> u16;
    /// The database's clock.
    async fn now(&self) -> Result<DbTime>;
    /// Creates or updates the lease row of an incarnation and raises its fence. Ends the lease of an older incarnation
    /// of the same node, whose claims are then lost. Where only one process can open the store, it ends every other
    /// lease. A node that joins again while another process is alive under its name gets [`StoreError::Unusable`].
    async fn join(&self, node: &NodeInfo, incarnation: Incarnation, ttl: Span) -> Result<(Lease, DbTime)>;
    /// Extends the lease, stores the node's status, lists its old claims, and raises the lower bound of its unlisted
    /// claims.
    async fn renew(&self, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime>;
    /// Raises the lease's fence. This waits for executing statements and rejects those that start later under the old
    /// fence.
    async fn raise_fence(&self, lease: &Lease) -> Result<Lease>;
    /// Releases every partition and acquires no more. For a node that is about to stop and still has runs to finish.
    /// The caller's own statements about these partitions must have ended.
    async fn retire(&self, lease: &Lease) -> Result<()>;
    /// Ends the lease and releases its partitions, so that other nodes need not wait for the lease to expire.
    async fn leave(&self, lease: &Lease) -> Result<()>;
    /// The live nodes, and the owner of each partition.
    async fn cluster(&self) -> Result<Cluster>;
    /// Nodes that have no lease and were alive within [`GoneNode::LISTED_FOR`], the last one first.
    async fn load_gone_nodes(&self) -> Result<Vec<GoneNode>>;
    /// How many jobs with a next tick each partition has, counted up to [`JOBS_COUNTED_MAX`] in all.
    async fn count_jobs(&self) -> Result<BTreeMap<u16, u64>>;
    /// Acquires those of the partitions that are free, or whose owner's lease has expired or ended. A dead owner is
    /// fenced first, which waits for its executing statements. Each acquired partition gets a higher fence. Returns
    /// those of the requested partitions that the node now owns.
    async fn acquire(&self, lease: &Lease, partitions: &PartitionSet) -> Result<PartitionSet>;
    /// Releases those of the partitions that the node owns. The caller's own statements about them must have ended.
    async fn release(&self, lease: &Lease, partitions: &PartitionSet) -> Result<()>;

    // Ticks.

    /// Jobs of the partitions whose cursor is before `until`, ordered by cursor and id, after the given position; at
    /// most `limit`.
    async fn load_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>>;
    /// The jobs that [`Store::load_horizon`] would load, in the same order, but only id, epoch and cursor: for a caller
    /// that already has nearly all of them in memory.
    async fn look_at_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<ChangedJob>>;
    /// Loads these jobs, each with its epoch, cursor and open runs in one snapshot. Leaves out unknown ids; includes
    /// deleted jobs while they have a row.
    async fn load_jobs(&self, ids: &[JobId]) -> Result<Vec<LoadedJob>>;
    /// Jobs of the partitions that were created or edited since the mark, and jobs that moved away from them. May leave
    /// out new jobs without a tick before [`ANNOUNCED_WITHIN`]: the horizon load finds them. Where commits do not become
    /// visible in number order, recent changes are returned again, so the reader must compare epochs. With a limit of
    /// 0, returns only the current mark.
    async fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Result<Changes>;
    /// Records ticks with one statement. It locks the lease and the epoch of each job, then inserts the ticks that are
    /// not after the database clock and not below the job's cursor. Leaves out jobs whose epoch has changed.
    async fn record(&self, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded>;
    /// Writes one range of skips and the cursor that passes it together, and raises the job's epoch.
    async fn record_range(&self, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer>;
    /// Raises the cursors of jobs that still have the given epoch. Returns the jobs whose cursor is now at least the
    /// given one.
    async fn raise_cursors(&self, raises: &[Raise]) -> Result<Vec<JobId>>;

    // Recovery.

    /// Jobs whose cursor is before `before`, in any partition, ordered by cursor and id, after the given position; at
    /// most `limit`. Needs no lease: for read-only callers.
    async fn load_overdue(
        &self,
        before: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>>;
    /// Every job that is not deleted, by id, after the given one; at most `limit`.
    async fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Result<Walked>;
    /// The recorded ticks of each job in its window.
    async fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>>;
    /// Records ticks that the cursor has passed and that have no row, under the job's lock, and raises the job's epoch
    /// so that its owner reloads it. Without ticks, only raises the epoch. Returns false, and does nothing, if the
    /// epoch has changed, or if a tick is not below the cursor or is after the clock.
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool>;

    // Runs.

    /// Runs that wait in the partitions and are due; at most `limit`. Of `busy` jobs, only forced runs and runs in
    /// progress (retries). Late runs come last, with tenants in rotation, beginning after `late_after`, so that one
    /// tenant's backlog hides no other's.
    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting>;
    /// Claims those of the runs that still wait in the partitions and are due. One commit raises fence and attempt.
    /// Leaves out the others, for example runs whose job has moved since the peek.
    async fn claim(&self, lease: &Lease, partitions: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>>;
    /// Assigns due waiting runs of the partitions to other nodes, which can deliver what this node cannot. Such a run
    /// counts as in progress, and only its assigned node claims it. When that node dies or stops, the run waits again,
    /// with no attempt used. Returns the assigned runs; leaves out runs whose node is not alive, and runs that have
    /// been claimed.
    async fn delegate(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[(RunId, Incarnation)],
    ) -> Result<Vec<RunId>>;
    /// Runs that other nodes have assigned to this node, oldest first, without runs of the jobs in `full`; at most
    /// `limit`.
    async fn peek_delegated(&self, lease: &Lease, full: &[JobId], limit: usize) -> Result<Vec<WaitingRun>>;
    /// Claims those of the runs that are still assigned to this node, in any partition.
    async fn claim_delegated(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>>;
    /// Writes settlements, each only if run, state and fence still match the claim. A terminal settlement ends the run;
    /// any other makes it wait again. Stores the attempt that ended.
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>>;
    /// Transfers claims of this incarnation to their receivers, each only if run, state and fence still match. The
    /// claim then lives as a worker's claim without a queue, independent of the node, until it is reported, cancelled
    /// or timed out.
    async fn accept(&self, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>>;
    /// Cancels those of the runs that are still open, because newer runs of their jobs supersede them. Raises their
    /// fences and records the reason. Returns the cancelled runs.
    async fn supersede(&self, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>>;
    /// Stores the output of cancelled runs: only of a run's last attempt, and only if no output is stored yet. Changes
    /// nothing else, and nothing of a run that is not cancelled.
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()>;
    /// Lists the claims of this incarnation on runs with ids below `to`, as the database has them, including claims
    /// that the node does not know of. A later renewal may then raise the lease's `open_from` up to that id. Reading
    /// and listing are one transaction, so a promoted standby that has lost a settlement has lost the list entry too.
    /// Returns how far it got: one call reads one page.
    async fn list_old_claims(&self, lease: &Lease, to: RunId) -> Result<RunId>;
    /// The listed claims of this incarnation: on runs that were old when they were claimed, or that have become old
    /// since. By id, after the given one; reads at most `limit` rows.
    async fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> Result<ListedClaims>;
    /// The runs with ids from `from` up to but not including `to` that this incarnation has claimed, by id and without
    /// payloads. It reads all runs of that time.
    async fn claims_between(&self, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>>;
    /// All runs that this incarnation has claimed, as the database has them. Slow: for callers that can wait.
    async fn load_claimed(&self, lease: &Lease) -> Result<Vec<ClaimedRun>> {
        let (mut claims, mut after) = (BTreeMap::new(), None);
        let open_from = loop {
            let page = self.listed_claims(lease, after, LISTED_PER_PAGE_MAX).await?;
            claims.extend(page.claims.into_iter().map(|run| (run.id, run)));
            after = page.next;
            if after.is_none() {
                break page.open_from;
            }
        };
        if let Some(from) = open_from {
            let end = RunId::floor(DbTime::MAX);
            claims.extend(self.claims_between(lease, from, end).await?.into_iter().map(|run| (run.id, run)));
        }
        Ok(claims.into_values().collect())
    }
    /// Those of the runs that this incarnation still has claimed, with their fences.
    async fn still_claimed(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>>;
    /// Fences the leases that have expired or ended, and returns runs that they had claimed; at most `limit`. Removes a
    /// lease that has no claims left.
    async fn load_lost(&self, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>>;

    // Requests of users.

    /// Creates jobs in one transaction; each one is created or refused on its own. The cursor is the first tick after
    /// the database clock.
    async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>>;
    /// Edits, pauses, resumes or deletes a job under its lock. Ticks already due under the old definition are recorded
    /// first (I11). A new home region moves the job, and its waiting runs, to another partition.
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited>;
    /// Creates a run by request. If the overlap policy forbids it, the run is recorded as skipped. Under `queue`, a run
    /// that waits raises the job's epoch, so that its owner plans again with this run, and limit and order stay
    /// correct.
    async fn trigger(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord>;
    /// Cancels an open run. Its fence rises, so a later report of its worker changes nothing.
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun>;

    /// Cancels all open runs of a job in one transaction.
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob>;
    /// Processes one batch of a backlog that was too long for the transaction that cancelled it or moved its job. Any
    /// node may call this. Two nodes never work on one job at once. Each batch is one commit, and the next batch
    /// continues after it.
    async fn advance_backlog(&self) -> Result<BacklogStep> {
        Ok(BacklogStep::default())
    }
    /// Creates a waiting run for each failed run, under an id derived from the failed run's id, so that no failed run
    /// is redriven twice. The new runs wait as late runs, even if other runs of the job are open, and start one after
    /// another. Creates only as many as may wait, and none when that limit is reached.
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven>;

    // Calendars.

    /// Creates a calendar, or a new version of it, valid for ticks after the returned instant. Raises the epochs of the
    /// jobs that use it, so that no tick planned under the old version is recorded afterwards. Putting the same content
    /// again changes nothing.
    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut>;
    /// Removes a calendar that no job uses; otherwise [`StoreError::InUse`].
    async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord>;
    async fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord>;
    /// Calendars by name, after the given name.
    async fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarRecord, String>>;
    /// Those of the named calendars that exist, with their stored versions.
    async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>>;

    // Queries of users.

    async fn get_job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord>;
    /// Jobs by name, after the given name, without deleted ones.
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>>;
    /// The facts known about the instant of a job that the question names. The job may be deleted. `kept` is how long
    /// ended runs are kept.
    async fn load_facts(&self, tenant: TenantId, job: &JobRef, question: Question, kept: Span) -> Result<Facts>;
    /// The facts known about a run, or a range of skips.
    async fn load_run_facts(&self, tenant: TenantId, run: RunId) -> Result<RunFacts>;
    async fn get_run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord>;
    /// Runs and skipped ranges, newest first, before the given id, without outputs. Finds failed runs without reading
    /// others; by another state, a cause, a flow or a label, a page reads at most `Limits::runs_searched_max` runs.
    async fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>>;
    /// Every attempt of a run, first to last.
    async fn list_attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>>;
    /// Audit rows, newest first, before the given number. With an actor or an action, a page reads at most
    /// `Limits::runs_searched_max` rows of each subject.
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>>;
    /// Live jobs whose ids begin like this, by id, with their names; at most `limit`.
    async fn find_jobs(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(JobId, String)>>;
    /// Backfills whose ids begin like this, by id, with the names of their jobs; at most `limit`.
    async fn find_backfills(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(BackfillId, String)>>;

    /// Removes runs that ended before `before`. Never removes an open run, a job's last run, or a tick at or above its
    /// job's cursor. Likewise removes skip ranges, deleted jobs without runs, and old idempotency keys. Deletes at most
    /// `limit` runs one by one. A store that drops whole days keeps the runs in the day of `before`.
    async fn prune(&self, before: DbTime, limit: usize) -> Result<Pruned>;
    /// Removes audit rows from before `before`, oldest first; at most `limit`. Returns how many.
    async fn prune_audit(&self, before: DbTime, limit: usize) -> Result<u64>;
    /// Saves which rows this process could not decode since the last call, and removes those that no process has met
    /// for [`UNREADABLE_KEPT`]. Returns how many are listed.
    async fn save_unreadable(&self) -> Result<u64>;
    /// Rows that nodes could not decode, most recently met first; at most `limit`.
    async fn list_unreadable(&self, limit: usize) -> Result<UnreadableRows>;
}
