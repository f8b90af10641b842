//! Where jobs, ticks and runs are kept. [`Store`] is a list of transactions, not of statements: each is done whole or not
//! at all, and each guards its own rules (lease, epoch, clock, fence) where it commits. Nothing here decides; the domain does.

mod backfills;
mod calendars;
mod cancels;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod facts;
mod failures;
mod flows;
mod gate;
pub mod keeping;
mod moving;
mod postgres;
mod probe;
mod queues;
mod redrives;
mod sqlite;
mod statement;
mod types;
mod unreadable;
mod untold;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::Facts,
    ids::{Fence, Incarnation, JobId, RunId, TenantId, Version},
    partition::PartitionSet,
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};

pub use backfills::{
    BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, EndedRuns, NewBackfill,
};
pub use calendars::{CalendarPut, CalendarRecord, PutCalendar};
pub use cancels::{CancelledJob, CancelledRuns, GiveWay, KeptOutput};
pub use clock::{ManualClock, SystemClock, WallClock};
pub use error::{Result, Source, StoreError};
pub use flows::{Advanced, CancelledFlow, FlowNode, FlowRecord, FlowStore, NodeRun, RerunFlow, SkippedChild};
pub use gate::API_WAIT_MAX;
pub use moving::{Move, MoveBatch, MoveMark, MovePlan, MoveStep, MovedTable, UndoTarget};
pub use postgres::{JobHints, PostgresOptions, PostgresStore};
pub use probe::{BENCH_PLACE, JobBytes, OpenSnapshot, PlainTick, Probe};
pub use queues::*;
pub use redrives::{Redrive, Redriven, RedrivenRun};
pub use sqlite::SqliteStore;
pub use types::*;
pub use unreadable::{UNREADABLE_KEPT, UNREADABLE_NOTED_MAX, UnreadableRow, UnreadableRows};
pub use untold::UNTOLD_FROM;

/// A store that any number of nodes may share. `Failed` means known not done; `Unsure` means it may have been done.
#[async_trait]
pub trait Store: QueueStore + BackfillStore + FlowStore {
    // The node.

    /// How many partitions the jobs of this store are spread over. A job's is that of `home::Homes::place`.
    fn partitions(&self) -> u16;
    /// The database's clock.
    async fn now(&self) -> Result<DbTime>;
    /// Takes or makes the lease row of an incarnation, with a raised fence. An older incarnation of the same node ends
    /// here; where only one process can have the store open, every other lease does: what they claimed is lost. One
    /// that joins again while another lives under its name is refused as [`StoreError::Unusable`].
    async fn join(&self, node: &NodeInfo, incarnation: Incarnation, ttl: Span) -> Result<(Lease, DbTime)>;
    /// Lengthens the lease, tells how the node is, lists its old claims and raises the bound of those that are not listed.
    async fn renew(&self, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime>;
    /// Raises the lease's fence, which waits for the statements under way and refuses those not yet begun.
    async fn raise_fence(&self, lease: &Lease) -> Result<Lease>;
    /// Gives every partition back and takes no more: for a node that is about to stop and still has runs to end. The
    /// caller's statements about them have ended.
    async fn retire(&self, lease: &Lease) -> Result<()>;
    /// Ends the lease and releases its partitions, so that another node need not wait for it to expire.
    async fn leave(&self, lease: &Lease) -> Result<()>;
    /// Who is there, and who holds what.
    async fn cluster(&self) -> Result<Cluster>;
    /// Takes those of the partitions that are free, or whose holder's lease has expired or ended. A dead holder is fenced
    /// first, which waits for the statements that it still has under way. Each partition's fence rises as it is taken.
    /// Gives those asked for that are now ours.
    async fn acquire(&self, lease: &Lease, partitions: &PartitionSet) -> Result<PartitionSet>;
    /// Gives back those of the partitions that are ours. The caller's statements about them have ended.
    async fn release(&self, lease: &Lease, partitions: &PartitionSet) -> Result<()>;

    // Ticks.

    /// Jobs of the partitions whose cursor lies before `until`, by cursor and id, after the given place; at most `limit`.
    async fn load_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>>;
    /// The jobs that [`Store::load_horizon`] would load there, in the same order, by name and epoch alone: for one who knows
    /// nearly all of them.
    async fn look_at_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<ChangedJob>>;
    /// These jobs as they stand, each with its epoch, cursor and open runs in one snapshot. Unknown ids are left out;
    /// deleted jobs come while they have a row.
    async fn load_jobs(&self, ids: &[JobId]) -> Result<Vec<LoadedJob>>;
    /// Jobs of the partitions whose epoch was raised since the mark, or made since, and those that moved away last. New jobs
    /// without a tick before [`UNTOLD_FROM`] may be left out: the horizon finds them. Where commits do not come in the order
    /// of their numbers, what was read lately comes again: a reader looks at the epoch. A limit of 0 only tells the present mark.
    async fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Result<Changes>;
    /// Records ticks: one statement that holds the lease and each job's epoch, and inserts what is not after its clock and
    /// not below the job's cursor. Jobs whose epoch is another are left out.
    async fn record(&self, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded>;
    /// Writes one range of skips together with the cursor that passes it, and raises the job's epoch.
    async fn record_range(&self, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer>;
    /// Raises cursors of jobs that still have the epoch named. Gives the jobs whose cursor now is at least as asked.
    async fn raise_cursors(&self, raises: &[Raise]) -> Result<Vec<JobId>>;

    // Recovery.

    /// Jobs whose cursor lies before `before`, whoever holds them, by cursor and id, after the given place; at most `limit`.
    /// For those who only look: it needs no lease.
    async fn load_overdue(
        &self,
        before: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>>;
    /// Every job that is not deleted, by id, after the given one; at most `limit`.
    async fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Result<Walked>;
    /// What is on the record of each job's window, as asked.
    async fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>>;
    /// Records ticks that the cursor has passed and that are not on the record, under the job's lock, and raises its epoch,
    /// so that whoever holds the job reads it again; without ticks it does only that. Whether it was done: not when the
    /// epoch is another, or a tick lies from the cursor on or after the clock.
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool>;

    // Runs.

    /// What waits in the partitions and is due, at most `limit`; of `busy` jobs only what is forced or in progress already
    /// (a retry). What is late comes last, tenants in turn, beginning after `late_after`: the backlog of one hides no other's.
    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting>;
    /// Claims those of the runs that still wait in the partitions and are due: fence and attempt raised, one commit. The others
    /// are left out: their job may have moved since they were looked at.
    async fn claim(&self, lease: &Lease, partitions: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>>;
    /// Hands runs that wait in the partitions and are due to other nodes, which can deliver what this one cannot. From then on a
    /// run counts as in progress, only its node claims it, and when that node dies or stops it waits again, unspent. Gives
    /// those that were handed over: not those whose node does not live, or that somebody else took.
    async fn delegate(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[(RunId, Incarnation)],
    ) -> Result<Vec<RunId>>;
    /// What other nodes have handed to this one, the oldest first, without runs of the jobs in `full`; at most `limit`.
    async fn peek_delegated(&self, lease: &Lease, full: &[JobId], limit: usize) -> Result<Vec<WaitingRun>>;
    /// Claims those of the runs that are still handed to this node, wherever they stand.
    async fn claim_delegated(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>>;
    /// Files settlements, each only where run, state and fence still hold the claim. Terminal ones end the run; the others
    /// put it back among the waiting. The attempt that ended is kept.
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>>;
    /// Hands claims of this incarnation over to their receivers, each only where run, state and fence still hold the claim: it lives
    /// by a worker's claim without a queue from then on, until it is reported, cancelled or timed out, whatever becomes of the node.
    async fn accept(&self, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>>;
    /// Cancels those of the runs that are still open, because newer ones of their jobs take their places: fences rise, and the
    /// reason is on the record. Gives those that it cancelled.
    async fn give_way(&self, lease: &Lease, runs: &[GiveWay]) -> Result<Vec<RunId>>;
    /// Keeps what cancelled runs had printed: only of a run's last attempt, and where nothing is kept yet. It changes nothing else
    /// of a run, and nothing of one that is not cancelled.
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()>;
    /// Lists the claims of this incarnation on runs with ids below `to`, as the database has them: those that its node does not know
    /// of too. A later renewal may raise the lease's `open_from` that far. What is read and what is noted are one transaction, so a
    /// standby that was promoted and has lost a settlement has lost this note too. Gives how far it came: one call reads a page.
    async fn list_old_claims(&self, lease: &Lease, to: RunId) -> Result<RunId>;
    /// The claims of this incarnation that are listed: on runs that were old when they were claimed, or have become old since. By id,
    /// after the given one; at most `limit` rows are looked at.
    async fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> Result<ListedClaims>;
    /// The runs with ids from `from` to before `to` that this incarnation has claimed, by id and without payloads. It reads all runs
    /// of that time.
    async fn claims_between(&self, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>>;
    /// The runs this incarnation has claimed, as the database has them: for those who can wait.
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
    /// Those of the runs that this incarnation has claimed still, with their fences.
    async fn still_claimed(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>>;
    /// Fences the leases that have expired or ended, and gives runs that they had claimed; at most `limit`. A lease with
    /// no claims left is removed.
    async fn load_lost(&self, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>>;

    // What people ask.

    /// Makes jobs: each alone is made or refused; one transaction for all. The cursor is the first tick after the clock.
    async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>>;
    /// Edits, pauses, resumes or deletes under the job's lock: the ticks already due under the old definition are recorded
    /// first (I11). Another home moves the job to another partition, with all of it that waits.
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited>;
    /// Makes a run because somebody asked. Under an overlap policy that forbids it the run is recorded as skipped. Under `queue`
    /// one that waits raises the job's epoch: what its holder had planned without it is planned anew, so that the limit and the
    /// order hold.
    async fn create_run(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord>;
    /// Cancels an open run: its fence rises, so what its worker says later changes nothing.
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun>;

    /// Cancels whatever of a job is open, in one transaction.
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob>;
    /// Works off one batch of a backlog that was too long for the transaction that cancelled it or moved its job. Any node may: two
    /// do not work at one job at once, and each batch is one commit, after which the next goes on from there.
    async fn advance_backlog(&self) -> Result<BacklogStep> {
        Ok(BacklogStep::default())
    }
    /// Makes a run that waits in place of each failed run, under an id made of the failed one's: one that is on the record is
    /// not made again. They wait as late ones do, whatever is open of the job, and start one after another. As many are made
    /// as may wait; none may when that many wait already.
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven>;

    // Calendars.

    /// Makes a calendar, or a new version of it, which holds for ticks after the answer's instant; the epochs of the jobs that
    /// name it rise, so that nothing planned under the old version is recorded after it. The same again changes nothing.
    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut>;
    /// Removes a calendar that no job names; else [`StoreError::InUse`].
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
    /// Those of these names that there are, with the versions that are kept.
    async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>>;

    // What people read.

    async fn get_job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord>;
    /// Jobs by name, after the given name. Deleted ones are not listed.
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>>;
    /// What is known of an instant of a job, also of one that was deleted, and the instant: the last tick expected by now when
    /// none is named. `kept` is how long ended runs are kept.
    async fn load_facts(
        &self,
        tenant: TenantId,
        job: &JobRef,
        at: Option<DbTime>,
        kept: Span,
    ) -> Result<(Facts, DbTime)>;
    async fn get_run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord>;
    /// Runs and skipped ranges, newest first, before the given id. Outputs are left out. Failed runs are found without
    /// reading others; for other states a page reads at most `Limits::runs_searched_max` runs.
    async fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>>;
    /// Every attempt at a run, the first one first.
    async fn list_attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>>;
    async fn list_audit(&self, tenant: TenantId, before: Option<i64>, limit: usize) -> Result<Page<AuditRecord, i64>>;

    /// Removes runs that ended before `before` (never open ones, never a job's last, never above a cursor), ranges likewise,
    /// deleted jobs without runs, and old idempotency keys; at most `limit` runs one by one. A keeper that drops whole
    /// days keeps what lies in the day of `before`.
    async fn prune(&self, before: DbTime, limit: usize) -> Result<Pruned>;
    /// Removes audit rows from before `before`, the oldest first; at most `limit`. Answers how many.
    async fn prune_audit(&self, before: DbTime, limit: usize) -> Result<u64>;
    /// Saves which rows this process could not decode since the last call, and forgets those that no process has met for
    /// [`UNREADABLE_KEPT`]. Gives how many are listed.
    async fn save_unreadable(&self) -> Result<u64>;
    /// Rows that nodes could not decode, those that were met last first; at most `limit`.
    async fn list_unreadable(&self, limit: usize) -> Result<UnreadableRows>;
}
