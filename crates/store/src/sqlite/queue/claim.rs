//! Claims runs of a queue for a worker.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{JobId, RunId},
    job::{Job, Overlap},
    queue::{CLAIM_RUNS_MAX, Candidate, JobLoad, QueueLimits, choose},
};
use sqlx::{Row as _, sqlite::SqliteRow};
use uuid::Uuid;

use super::{
    super::{DbTx, Failed, SqliteStore, rows, rows::Hex},
    store::limits,
    superseded::supersede,
};
use crate::{CLAIM_PAGE_MIN, CLAIM_PAGES_MAX, ClaimQueue, ClaimedRun, QueueClaims, Result, WorkerClaim};

const CLAIMING: &str = "claim from a queue";

pub(super) async fn claim_queue(store: &SqliteStore, ask: &ClaimQueue) -> Result<QueueClaims> {
    match claim_once(store, ask, false).await {
        // One run makes the claim fail: claim each run on its own, and leave that one out.
        Err(error) if error.is_for_its_data() => claim_once(store, ask, true).await,
        claimed => claimed,
    }
}

async fn claim_once(store: &SqliteStore, ask: &ClaimQueue, one_by_one: bool) -> Result<QueueClaims> {
    let mut write = store.write(CLAIMING).await?;
    let claims = claim(&mut write, ask, one_by_one).await?;
    write.commit().await?;
    Ok(claims)
}

async fn claim(write: &mut DbTx, ask: &ClaimQueue, one_by_one: bool) -> Result<QueueClaims> {
    let now = write.now;
    let mut remaining = ask.limit.min(CLAIM_RUNS_MAX);
    let queue = |statement| sqlx::query(statement).bind(ask.tenant.raw()).bind(&ask.queue);
    let found = queue(sql!("queue/queue_limits")).fetch_optional(&mut *write.tx).await.failed(CLAIMING)?;
    let limits = match found {
        None => None,
        Some(row) => Some((limits(&row).failed(CLAIMING)?, row.try_get::<i64, _>("spent_until").failed(CLAIMING)?)),
    };
    if let Some((limits, spent_until)) = &limits {
        let counted = queue(sql!("queue/queue_claimed")).fetch_one(&mut *write.tx).await.failed(CLAIMING)?;
        let claimed: i64 = counted.try_get(0).failed(CLAIMING)?;
        remaining = limits.claimable(remaining, usize::try_from(claimed).unwrap_or(usize::MAX), *spent_until, now);
    }
    let mut known = KnownJobs::default();
    let chosen = choose_runs(write, ask, remaining, &mut known).await?;
    let claims = if one_by_one {
        take_one_by_one(write, ask, &chosen, &known).await?
    } else {
        take(write, ask, &chosen, &known).await?
    };
    if let Some((QueueLimits { rate: Some(rate), .. }, spent_until)) = &limits
        && !claims.is_empty()
    {
        queue(sql!("queue/queue_spend"))
            .bind(rate.spend(*spent_until, now, claims.len()))
            .execute(&mut *write.tx)
            .await
            .failed(CLAIMING)?;
    }
    Ok(QueueClaims { now, claims })
}

/// The jobs whose runs are candidates.
#[derive(Default)]
struct KnownJobs {
    jobs: HashMap<JobId, Arc<Job>>,
    /// For guarded jobs: those with a limit on runs in progress, or with a concurrency key (`is_guarded`).
    loads: BTreeMap<JobId, JobLoad>,
    /// Runs superseded by newer ones.
    gone: BTreeSet<RunId>,
}

async fn choose_runs(
    write: &mut DbTx,
    ask: &ClaimQueue,
    remaining: usize,
    known: &mut KnownJobs,
) -> Result<Vec<RunId>> {
    let mut chosen = Vec::new();
    let mut place = (i64::MIN, Uuid::nil());
    for page in 0..CLAIM_PAGES_MAX {
        if chosen.len() >= remaining {
            break;
        }
        let size = ((remaining - chosen.len()) * 2).max(CLAIM_PAGE_MIN << page);
        let mut candidates = peek(write, ask, known, &mut place, size).await?;
        let last = candidates.len() < size;
        load_jobs(write, &candidates, known).await?;
        candidates.retain(|candidate| known.jobs.contains_key(&candidate.job) && !known.gone.contains(&candidate.run));
        chosen.extend(choose(&candidates, &mut known.loads, remaining - chosen.len()));
        if last {
            break;
        }
    }
    Ok(chosen)
}

/// The next page of waiting runs behind `place`. Advances `place`.
async fn peek(
    write: &mut DbTx,
    ask: &ClaimQueue,
    known: &KnownJobs,
    place: &mut (i64, Uuid),
    size: usize,
) -> Result<Vec<Candidate>> {
    let full = known.loads.iter().filter(|(_, load)| load.is_full()).map(|(job, _)| *job);
    let of_job = |(job, load): (&JobId, &JobLoad)| {
        load.full_keys().into_iter().map(|key| (Hex(job.uuid()), key.to_owned())).collect::<Vec<_>>()
    };
    let keys: Vec<_> = known.loads.iter().flat_map(of_job).collect();
    let found = write
        .fetch_all(query!(
            "queue/queue_peek",
            ask.tenant.raw(),
            &ask.queue,
            write.now.millis(),
            place.0,
            place.1,
            rows::job_ids(full),
            rows::limit(size),
            rows::json(&keys),
            rows::job_ids(write.unreadable.jobs_aside()),
            rows::run_ids(write.unreadable.runs_aside())
        ))
        .await?;
    if let Some(last) = found.last() {
        *place = (last.try_get("rank").failed(CLAIMING)?, last.try_get("run").failed(CLAIMING)?);
    }
    Ok(write.unreadable.each("waiting", &found, candidate))
}

fn candidate(row: &SqliteRow) -> std::result::Result<Candidate, sqlx::Error> {
    Ok(Candidate {
        run: rows::run_id(row, "run")?,
        job: rows::job_id(row, "job")?,
        force: row.try_get("force")?,
        attempts: row.try_get("attempts")?,
        key: row.try_get("key")?,
    })
}

async fn load_jobs(write: &mut DbTx, candidates: &[Candidate], known: &mut KnownJobs) -> Result<()> {
    let new: BTreeSet<JobId> =
        candidates.iter().map(|candidate| candidate.job).filter(|job| !known.jobs.contains_key(job)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let asked = rows::job_ids(new.iter().copied());
    let found = write.fetch_all(query!("jobs/load_jobs", asked)).await?;
    let mut guarded = Vec::new();
    for row in write.unreadable.each("jobs", &found, rows::job) {
        if row.job.spec.is_guarded() {
            guarded.push(row.job.id);
            known.loads.insert(row.job.id, JobLoad::of(&row.job.spec));
        }
        known.jobs.insert(row.job.id, Arc::new(row.job));
    }
    if guarded.is_empty() {
        return Ok(());
    }
    let cancelling: Vec<Arc<Job>> = guarded
        .iter()
        .filter_map(|job| known.jobs.get(job))
        .filter(|job| job.spec.overlap == Overlap::CancelPrevious)
        .cloned()
        .collect();
    known.gone.extend(supersede(write, &cancelling).await?);
    let asked = rows::job_ids(guarded);
    let found = write.fetch_all(query!("queue/jobs_in_progress", &asked)).await?;
    for row in &found {
        let (job, run) = (rows::job_id(row, "job").failed(CLAIMING)?, rows::run_id(row, "run").failed(CLAIMING)?);
        let Some(load) = known.loads.get_mut(&job) else { continue };
        if row.try_get("claimed").failed(CLAIMING)? {
            load.claimed.insert(run, row.try_get("key").failed(CLAIMING)?);
        } else {
            load.between.insert(run);
        }
    }
    // The node may still have claims on runs of a job that had another target.
    let found = write.fetch_all(query!("horizon/open_claimed", &asked)).await?;
    for row in &found {
        let (job, run) = rows::open_run(row).failed(CLAIMING)?;
        if let Some(load) = known.loads.get_mut(&job) {
            load.claimed.entry(run.id).or_insert(None);
        }
    }
    Ok(())
}

/// Claims the chosen runs one by one. A run that cannot be claimed is noted, and later claims leave it out.
async fn take_one_by_one(
    write: &mut DbTx,
    ask: &ClaimQueue,
    chosen: &[RunId],
    known: &KnownJobs,
) -> Result<Vec<WorkerClaim>> {
    let mut claims = Vec::new();
    for run in chosen {
        sqlx::raw_sql("savepoint one").execute(&mut *write.tx).await.failed(CLAIMING)?;
        match take(write, ask, &[*run], known).await {
            Ok(taken) => claims.extend(taken),
            Err(error) if error.is_for_its_data() => {
                write.unreadable.note_run(*run, &error);
                sqlx::raw_sql("rollback to one").execute(&mut *write.tx).await.failed(CLAIMING)?;
            }
            Err(error) => return Err(error),
        }
        sqlx::raw_sql("release one").execute(&mut *write.tx).await.failed(CLAIMING)?;
    }
    Ok(claims)
}

async fn take(write: &mut DbTx, ask: &ClaimQueue, chosen: &[RunId], known: &KnownJobs) -> Result<Vec<WorkerClaim>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let now = write.now;
    let ids = rows::run_ids(chosen.iter().copied());
    let found = query!("queue/queue_claim", &ids, now.millis(), &ask.worker)
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(CLAIMING)?;
    let mut claimed: Vec<ClaimedRun> =
        found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(CLAIMING)?;
    let places: HashMap<_, _> = chosen.iter().enumerate().map(|(place, run)| (*run, place)).collect();
    claimed.sort_by_key(|run| places.get(&run.id).copied());
    let until = now.plus(ask.lease);
    let claims: Vec<WorkerClaim> = claimed
        .into_iter()
        .filter_map(|run| {
            let job = known.jobs.get(&run.job)?.clone();
            let timeout_at = now.plus(job.spec.timeout);
            Some(WorkerClaim { run, job, until, timeout_at })
        })
        .collect();
    let noted = |claim: &WorkerClaim| {
        let run = &claim.run;
        let previous = claim.job.spec.overlap == Overlap::CancelPrevious;
        (Hex(run.id.uuid()), Hex(run.job.uuid()), run.fence.raw(), claim.timeout_at.millis(), u8::from(previous))
    };
    write
        .execute_or_refuse(query!(
            "worker_claims/worker_claims_insert",
            rows::json(&claims.iter().map(noted).collect::<Vec<_>>()),
            ask.tenant.raw(),
            &ask.queue,
            &ask.worker,
            until.millis()
        ))
        .await?;
    write.execute(query!("waiting/dequeue_runs", ids)).await?;
    Ok(claims)
}
