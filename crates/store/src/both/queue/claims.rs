//! The parts of a claim from a queue that both databases share.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{JobId, RunId},
    job::{Job, Overlap},
    queue::{CLAIM_RUNS_MAX, Candidate, JobLoad, Rate},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{
    super::{DbRow, DbTx, Failed, db_tx::Query, rows},
    previous,
    store::limits,
    superseded::supersede,
};
use crate::{ClaimQueue, ClaimedRun, Result, WorkerClaim, tx::Tx as _};

/// A search continues after this rank and run.
pub(super) type Place = (i64, Uuid);
pub(super) const BEGINNING: Place = (i64::MIN, Uuid::nil());

/// How many runs a claim may take.
pub(super) struct Budget {
    pub runs: usize,
    /// The queue's rate, and until when earlier claims have used it.
    rate: Option<(Rate, i64)>,
}

/// Reads the limits of the queue with this statement, then the clock and the number of claimed runs.
pub(super) async fn budget(tx: &mut DbTx, ask: &ClaimQueue, statement: Query<'_>) -> Result<Budget> {
    let found = tx.fetch_optional(statement).await?;
    let now = tx.read_clock().await?;
    let wanted = ask.limit.min(CLAIM_RUNS_MAX);
    let Some(row) = found else { return Ok(Budget { runs: wanted, rate: None }) };
    let (limits, spent_until) = (limits(&row).failed(tx.doing)?, row.try_get("spent_until").failed(tx.doing)?);
    let claimed: i64 = tx.scalar(query!("queue/queue_claimed", ask.tenant.raw(), &ask.queue)).await?;
    let runs = limits.claimable(wanted, usize::try_from(claimed).unwrap_or(usize::MAX), spent_until, now);
    Ok(Budget { runs, rate: limits.rate.map(|rate| (rate, spent_until)) })
}

impl Budget {
    /// Counts this many claims against the queue's rate.
    pub(super) async fn spend(&self, tx: &mut DbTx, ask: &ClaimQueue, claims: usize) -> Result<()> {
        if let Some((rate, spent_until)) = self.rate.filter(|_| claims > 0) {
            let spent_until = rate.spend(spent_until, tx.now, claims);
            tx.execute(query!("queue/queue_spend", ask.tenant.raw(), &ask.queue, spent_until)).await?;
        }
        Ok(())
    }
}

/// A waiting run, with its position in the queue.
pub(super) fn candidate(row: &DbRow) -> rows::Decoded<(Place, Candidate)> {
    let candidate = Candidate {
        run: rows::run_id(row, "run")?,
        job: rows::job_id(row, "job")?,
        force: row.try_get("force")?,
        attempts: rows::count(row, "attempts")?,
        key: row.try_get("key")?,
    };
    Ok(((row.try_get("rank")?, candidate.run.uuid()), candidate))
}

/// Under `cancel_previous`: cancels the runs of these jobs that newer runs supersede. Then adds the runs in progress of
/// the jobs to their loads. Returns the cancelled runs.
pub(super) async fn load(
    tx: &mut DbTx,
    guarded: &[JobId],
    jobs: &HashMap<JobId, Arc<Job>>,
    loads: &mut BTreeMap<JobId, JobLoad>,
) -> Result<Vec<RunId>> {
    if guarded.is_empty() {
        return Ok(Vec::new());
    }
    let cancels = |job: &&Arc<Job>| job.spec.overlap == Overlap::CancelPrevious;
    let cancelling: Vec<Arc<Job>> = guarded.iter().filter_map(|job| jobs.get(job)).filter(cancels).cloned().collect();
    let gone = supersede(tx, &cancelling).await?;
    let found = tx.fetch_all(query!("queue/jobs_in_progress", rows::job_ids(guarded))).await?;
    for row in &found {
        let (job, run) = (rows::job_id(row, "job").failed(tx.doing)?, rows::run_id(row, "run").failed(tx.doing)?);
        let Some(load) = loads.get_mut(&job) else { continue };
        if row.try_get("claimed").failed(tx.doing)? {
            load.claimed.insert(run, row.try_get("key").failed(tx.doing)?);
        } else {
            load.between.insert(run);
        }
    }
    // Nodes may still have claims on runs of a job that had another target.
    for (job, run) in previous::claimed_runs(tx, guarded).await? {
        if let Some(load) = loads.get_mut(&job) {
            load.claimed.entry(run.id).or_insert(None);
        }
    }
    Ok(gone)
}

/// The claims on the claimed runs, in the order of `chosen`.
pub(super) fn claims(
    tx: &DbTx,
    ask: &ClaimQueue,
    chosen: &[RunId],
    mut claimed: Vec<ClaimedRun>,
    jobs: &HashMap<JobId, Arc<Job>>,
) -> Vec<WorkerClaim> {
    ClaimedRun::sort_as(&mut claimed, chosen);
    let claim = |run: ClaimedRun| {
        let job = jobs.get(&run.job)?.clone();
        let timeout_at = tx.now.plus(job.spec.timeout);
        Some(WorkerClaim { run, job, until: tx.now.plus(ask.lease), timeout_at })
    };
    claimed.into_iter().filter_map(claim).collect()
}

/// Begins a savepoint for the claim on one of several runs.
pub(super) async fn begin_one(tx: &mut DbTx) -> Result<()> {
    sqlx::raw_sql("savepoint one").execute(&mut *tx.tx).await.failed(tx.doing).map(drop)
}

/// Ends the savepoint. If the run cannot be claimed because of its data, undoes the claim and notes the run, so that later claims
/// leave it out.
pub(super) async fn end_one(
    tx: &mut DbTx,
    run: RunId,
    taken: Result<Vec<WorkerClaim>>,
    claims: &mut Vec<WorkerClaim>,
) -> Result<()> {
    match taken {
        Ok(taken) => claims.extend(taken),
        Err(error) if error.is_for_its_data() => {
            tx.unreadable.note_run(run, &error);
            sqlx::raw_sql("rollback to one").execute(&mut *tx.tx).await.failed(tx.doing)?;
        }
        Err(error) => return Err(error),
    }
    sqlx::raw_sql("release one").execute(&mut *tx.tx).await.failed(tx.doing).map(drop)
}
