//! The cold transactions, each written once, and the verbs that they are made of.
//!
//! A cold transaction is a function in a file of this folder, generic over [`Tx`]. PostgreSQL, SQLite and the simulated
//! store implement the verbs; the order of locks, reads, decisions and writes is visible in one place. The hot paths
//! (recording, claiming, settling, raising cursors) differ between the stores and are not written here.
//!
//! # Rules
//!
//! - Lock first, then read in a later verb: on PostgreSQL only a later statement sees what was committed during the wait.
//! - Read the clock after the locks ([`Tx::read_clock`]).
//! - Lock order: settings, partitions, calendars, secrets, epochs in ascending id, tenants, waiting rows, runs.
//! - A script may return an error at any point: the caller rolls the transaction back.
//! - A store with one writer needs no locks ([`SharedTx`]).

pub mod backfill;
pub mod calendar;
pub mod cancel;
pub mod create;
mod edges;
pub mod edit;
pub mod explain;
pub mod flow;
pub mod queue;
pub mod redrive;
pub mod requests;
pub mod secret;
pub mod tenant;
pub mod token;
pub mod trigger;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    edit::Edit,
    flow::{Edges, When},
    home::{BlockClaim, Homes},
    ids::{BackfillId, Epoch, JobId, RunId, TenantId},
    job::Job,
    overlap::OpenRuns,
    plan::{SkipRange, TickRow},
    run::State,
    time::DbTime,
};

use crate::{
    Actor, BacklogAction, Created, IdempotencyKey, JobRef, JobTicks, Lease, Limits, OpenRun, RecordRow, Result,
    RunRecord, StoreError, TenantNow,
};
use requests::{Made, StoredRequest};
use secret::NamedSecret;

/// A job's row, with its epoch and cursor.
#[derive(Clone, Debug)]
pub struct JobRow {
    pub job: Job,
    pub epoch: Epoch,
    pub cursor: Option<DbTime>,
}

impl JobRow {
    /// Ticks of this definition, which an edit records before it replaces the definition.
    pub fn ticks<'a>(&self, partition: u16, ticks: impl IntoIterator<Item = &'a TickRow>) -> JobTicks {
        JobTicks {
            job: self.job.id,
            tenant: self.job.tenant,
            partition,
            epoch: self.epoch,
            priority: self.job.spec.priority,
            key: self.job.spec.key_of(None),
            rows: ticks.into_iter().map(|tick| RecordRow { tick: tick.clone(), born_claimed: false }).collect(),
        }
    }
}

/// What a lock of jobs excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobLock {
    /// Everything: edits, requests, and the recording of ticks.
    All,
    /// Edits and other requests. Ticks are recorded meanwhile.
    Requests,
}

/// A run to insert by request or redrive. It waits, or is skipped.
#[derive(Clone, Debug)]
pub struct RequestedRun<'a> {
    pub id: RunId,
    pub job: &'a Job,
    pub state: State,
    pub force: bool,
    pub payload: Option<&'a String>,
}

/// The verbs that only a database shared by many nodes needs. A store with one writer keeps the defaults, which do
/// nothing.
#[async_trait]
pub trait SharedTx: Send {
    /// Notifies the owners of jobs, when this transaction commits, that jobs have changed.
    async fn notify_owners(&mut self) -> Result<()> {
        Ok(())
    }

    // Locks.

    /// Serializes requests under one key until the transaction ends.
    async fn lock_key(&mut self, _tenant: TenantId, _key: &str) -> Result<()> {
        Ok(())
    }
    /// Locks a calendar, so that its versions follow each other.
    async fn lock_calendar(&mut self, _tenant: TenantId, _name: &str) -> Result<()> {
        Ok(())
    }
    /// Locks the named calendars against changes.
    async fn lock_calendars(&mut self, _tenant: TenantId, _names: &[String]) -> Result<()> {
        Ok(())
    }
    /// Locks a secret, so that its versions follow each other.
    async fn lock_secret(&mut self, _tenant: TenantId, _name: &str) -> Result<()> {
        Ok(())
    }
    /// Locks the named secrets against changes.
    async fn lock_secrets(&mut self, _tenant: TenantId, _names: &[String]) -> Result<()> {
        Ok(())
    }
    /// Locks the operator keys, so that none is forgotten while a value that needs it is being stored.
    async fn lock_keys(&mut self) -> Result<()> {
        Ok(())
    }
    /// Locks the epochs of these jobs, in ascending id.
    async fn lock_jobs(&mut self, _jobs: &[JobId], _lock: JobLock) -> Result<()> {
        Ok(())
    }
    /// Serializes changes of tokens and settings.
    async fn lock_access(&mut self) -> Result<()> {
        Ok(())
    }
    /// Locks a tenant against changes, and against transactions that define its jobs.
    async fn lock_tenant_row(&mut self, _tenant: TenantId) -> Result<()> {
        Ok(())
    }
    async fn lock_backfill(&mut self, _id: BackfillId) -> Result<()> {
        Ok(())
    }
    async fn lock_flow(&mut self, _flow: RunId) -> Result<()> {
        Ok(())
    }
    async fn lock_run(&mut self, _tenant: TenantId, _run: RunId) -> Result<()> {
        Ok(())
    }
    /// Locks the claimed runs of a job, which waits for their settlements.
    async fn lock_claimed(&mut self, _job: JobId) -> Result<()> {
        Ok(())
    }

    // Credentials.

    /// Notifies every node, when this transaction commits, that tokens or settings have changed.
    async fn notify_access(&mut self) -> Result<()> {
        Ok(())
    }
    /// The names of the living nodes that check no tokens, because their release is older.
    async fn unchecking_nodes(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// From now on, prevents the start of such nodes.
    async fn refuse_unchecking_nodes(&mut self) -> Result<()> {
        Ok(())
    }

    /// The names of the living nodes that do not fill in references to secrets, because their release is older.
    async fn unfilling_nodes(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// If there is a secret, prevents the start of such nodes from now on.
    async fn refuse_unfilling_nodes(&mut self) -> Result<()> {
        Ok(())
    }

    /// The names of the living nodes that know no tenants, because their release is older.
    async fn unaware_nodes(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Prevents that such nodes start from now on, if there is a tenant beside the default one.
    async fn refuse_unaware_nodes(&mut self) -> Result<()> {
        Ok(())
    }

    // Backlogs that are too long for one transaction.

    /// Whether more runs of a job wait than one transaction processes, or its backlog is being processed already.
    async fn backlog_is_long(&mut self, _job: JobId) -> Result<bool> {
        Ok(false)
    }
    /// What happens in the background to the waiting runs of a job, if anything.
    async fn backlog_action(&mut self, _job: JobId) -> Result<Option<BacklogAction>> {
        Ok(None)
    }
    /// Marks the waiting runs of a job, so that they are cancelled or moved in the background.
    async fn mark_backlog(&mut self, _tenant: TenantId, _actor: &Actor, _job: JobId, _do: BacklogAction) -> Result<()> {
        Ok(())
    }
}

/// The verbs of one write transaction. A read returns the state within the transaction, including its own writes.
#[async_trait]
pub trait Tx: SharedTx {
    // The transaction.

    /// What the transaction does, for error messages.
    fn doing(&self) -> &'static str;
    /// The time that [`Tx::read_clock`] last read.
    fn now(&self) -> DbTime;
    fn limits(&self) -> &Limits;
    /// Reads the database clock, after the locks were acquired.
    async fn read_clock(&mut self) -> Result<DbTime>;
    /// Writes audit rows (subject, detail) in the transaction of the change (I21).
    async fn audit(&mut self, tenant: TenantId, actor: &Actor, action: &str, rows: &[(String, String)]) -> Result<()>;

    /// Locks the lease against a higher fence, and checks that it is alive. Reads the clock.
    async fn lock_lease(&mut self, lease: &Lease) -> Result<()>;

    // Idempotency keys.

    /// The request stored under this key since the given instant.
    async fn find_request(&mut self, tenant: TenantId, key: &str, since: DbTime) -> Result<Option<StoredRequest>>;
    async fn insert_request(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()>;

    // Jobs.

    /// A live job by name or id, with its calendars.
    async fn find_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow>;
    /// The rows of these jobs, deleted ones included. Leaves out unknown ids.
    async fn load_jobs(&mut self, jobs: &[JobId]) -> Result<Vec<JobRow>>;
    /// Makes the owner plan again: ticks planned under the old epoch are rejected. The caller has locked the job.
    async fn raise_epoch(&mut self, job: JobId) -> Result<Epoch>;
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()>;

    // Definitions of jobs.

    /// Locks the tenant, which serializes its definitions, and reads what limits them.
    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<TenantNow>;
    /// Reads the tenant, and locks it against changes of its state and its quotas. `None` if it has no row.
    async fn share_tenant(&mut self, tenant: TenantId) -> Result<Option<TenantNow>>;
    async fn names_taken(&mut self, tenant: TenantId, names: &[String]) -> Result<HashSet<String>>;
    /// The blocks of partitions by which jobs of these regions are placed. If a region has no block yet, locks all
    /// partitions, so that regions claim blocks one after another.
    async fn lock_homes(&mut self, regions: &[&str]) -> Result<Homes>;
    async fn claim_block(&mut self, claim: &BlockClaim) -> Result<()>;
    /// Those of the named calendars that exist.
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>>;
    /// The rules of the named secrets. Leaves out names that do not exist.
    async fn secrets_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<NamedSecret>>;
    /// Inserts jobs with their epochs, cursors, used calendars and used secrets, and counts them for the tenant's quota.
    async fn insert_jobs(&mut self, tenant: TenantId, actor: &Actor, jobs: &[&Created]) -> Result<()>;
    /// Writes the new definition of a job, and the calendars and secrets that it uses now. A deleted job no longer counts for the
    /// quota.
    async fn update_job(&mut self, was: &JobRow, job: &Job) -> Result<()>;
    /// The last tick of a job that has a row or lies in a skip range, at or after `from`.
    async fn last_recorded(&mut self, job: JobId, from: DbTime) -> Result<Option<DbTime>>;
    /// Inserts the ticks with which an edit ends the old definition. Returns those that now have a row of this edit.
    async fn insert_edited(&mut self, was: &JobRow, edit: &Edit) -> Result<BTreeSet<RunId>>;
    async fn insert_ranges(&mut self, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()>;
    /// Moves a job and its waiting runs to its new partition and queue. Leaves a marked backlog to the background.
    async fn move_job(&mut self, was: &Job, job: &Job, marked: bool) -> Result<()>;

    // Edges between jobs.

    /// The live jobs with these names or ids.
    async fn jobs_called(&mut self, tenant: TenantId, names: &[String], ids: &[JobId]) -> Result<Vec<(JobId, String)>>;
    /// The edges between all jobs that are connected with these.
    async fn edges_near(&mut self, jobs: &[JobId]) -> Result<Edges>;
    /// The names of the live jobs that depend on this one.
    async fn children_of(&mut self, job: JobId) -> Result<Vec<String>>;
    async fn set_parents(&mut self, job: &Job, parents: &[(JobId, When)]) -> Result<()>;

    // Runs.

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord>;
    /// The open runs of these jobs, by id. Of the waiting ones, only as many as the overlap policy needs.
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>>;
    /// The number of waiting runs of a job, counted up to `max`.
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64>;
    /// Inserts a run by request, and enqueues it if it waits. Returns false if the run exists already.
    async fn insert_requested(&mut self, run: RequestedRun<'_>) -> Result<bool>;
    /// Removes runs from the waiting ones.
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()>;
    /// Removes all runs of a job from the waiting ones, and returns them.
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>>;
    /// Cancels those of the runs that are open, and raises their fences.
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()>;
    /// Cancels the claimed runs of a job, as [`Tx::cancel_runs`] does, and returns them.
    async fn cancel_claimed(&mut self, job: JobId) -> Result<Vec<RunId>>;
    /// Keeps the logs of cancelled runs as their output, and removes the claims on them.
    async fn end_claims(&mut self, runs: &[RunId]) -> Result<()>;
    /// Writes a step for each of these ended runs that a flow may follow. Every transaction that ends runs calls this.
    async fn leave_steps(&mut self, runs: &[RunId]) -> Result<()>;
    /// Failed runs of a job with ids in this range, oldest first, with payloads only if the job has a concurrency key.
    async fn failed_runs(&mut self, job: &Job, from: RunId, to: RunId, limit: usize) -> Result<Vec<RunRecord>>;
    /// The states of those of the runs that exist.
    async fn run_states(&mut self, runs: &[RunId]) -> Result<HashMap<RunId, State>>;
    /// Inserts a waiting, late run for each failed run: (failed run, new run, concurrency key).
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()>;
}

/// Runs a transaction of this folder in a store: begins it, and commits it, or rolls it back on an error.
macro_rules! in_tx {
    ($store:expr, $doing:literal, $tx:ident => $script:expr) => {
        $store
            .writes(async {
                let mut write = $store.write($doing).await?;
                let $tx = &mut write;
                let done = $script.await;
                write.finish(done).await
            })
            .await
    };
}
pub(crate) use in_tx;

/// Runs a script that only reads, in one snapshot.
macro_rules! in_read {
    ($store:expr, $doing:literal, $tx:ident => $script:expr) => {
        $store
            .reads(async {
                let mut read = $store.read($doing).await?;
                let $tx = &mut read;
                $script.await
            })
            .await
    };
}
pub(crate) use in_read;

/// Locks a live job by name or id. Then reads it and the clock in later verbs, which see what was committed meanwhile.
pub async fn lock_job<T: Tx + ?Sized>(tx: &mut T, lock: JobLock, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
    loop {
        let id = tx.find_job(tenant, job).await?.job.id;
        tx.lock_jobs(&[id], lock).await?;
        let row = tx.find_job(tenant, job).await?;
        // The name may belong to another job by now.
        if row.job.id == id {
            tx.read_clock().await?;
            return Ok(row);
        }
    }
}

/// The lock that a new run of the job needs: against other requests, and under `queue` also against ticks, so that all
/// of them see each other. A job whose policy changes meanwhile is at worst locked too weakly once.
pub async fn lock_for_request<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
    let found = tx.find_job(tenant, job).await?.job;
    let lock = if found.spec.overlap.is_queue() { JobLock::All } else { JobLock::Requests };
    lock_job(tx, lock, tenant, job).await
}

/// The open runs of a job, counted as its overlap policy needs. Reads none if any number may be open: a queue may have a
/// long backlog.
pub async fn count_open<T: Tx + ?Sized>(tx: &mut T, job: &Job) -> Result<OpenRuns> {
    if job.spec.in_progress_max().is_none() {
        return Ok(OpenRuns::NONE);
    }
    let open = tx.open_runs(&[job]).await?;
    Ok(open.get(&job.id).map_or(OpenRuns::NONE, |open| OpenRun::count(open)))
}

/// Writes one audit row.
pub async fn audit_one<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    action: &str,
    subject: String,
    detail: String,
) -> Result<()> {
    tx.audit(tenant, actor, action, &[(subject, detail)]).await
}

/// An error in the data of a request that the database rejected.
pub fn invalid(found: everytick_domain::invalid::Invalid) -> StoreError {
    StoreError::Invalid(vec![found])
}
