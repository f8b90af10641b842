//! Claims runs of a queue for a worker.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{JobId, RunId},
    job::{Job, Overlap},
    queue::{Candidate, JobLoad, choose},
};
use sqlx::Row as _;

use super::{
    super::{DbTx, Failed, SqliteStore, rows, rows::Hex},
    claims::{BEGINNING, Place, begin_one, budget, candidate, claims, end_one, load},
};
use crate::{CLAIM_PAGE_MIN, CLAIM_PAGES_MAX, ClaimQueue, QueueClaims, Result, WorkerClaim};

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
    let limits = query!("queue/queue_limits", ask.tenant.raw(), &ask.queue);
    let budget = budget(write, ask, limits).await?;
    let mut known = KnownJobs::default();
    let chosen = choose_runs(write, ask, budget.runs, &mut known).await?;
    let claims = if one_by_one {
        take_one_by_one(write, ask, &chosen, &known).await?
    } else {
        take(write, ask, &chosen, &known).await?
    };
    budget.spend(write, ask, claims.len()).await?;
    Ok(QueueClaims { now: write.now, claims })
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
    let mut place = BEGINNING;
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

/// The next page of waiting runs after `place`. Advances `place`.
async fn peek(
    write: &mut DbTx,
    ask: &ClaimQueue,
    known: &KnownJobs,
    place: &mut Place,
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
    Ok(write.unreadable.each("waiting", &found, |row| candidate(row).map(|(_, candidate)| candidate)))
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
    known.gone.extend(load(write, &guarded, &known.jobs, &mut known.loads).await?);
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
        begin_one(write).await?;
        let taken = take(write, ask, &[*run], known).await;
        end_one(write, *run, taken, &mut claims).await?;
    }
    Ok(claims)
}

async fn take(write: &mut DbTx, ask: &ClaimQueue, chosen: &[RunId], known: &KnownJobs) -> Result<Vec<WorkerClaim>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let ids = rows::run_ids(chosen.iter().copied());
    let found = query!("queue/queue_claim", &ids, write.now.millis(), &ask.worker)
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(CLAIMING)?;
    let claimed = found.iter().map(rows::claimed).collect::<sqlx::Result<_>>().failed(CLAIMING)?;
    let claims = claims(write, ask, chosen, claimed, &known.jobs);
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
            write.now.plus(ask.lease).millis()
        ))
        .await?;
    write.execute(query!("waiting/dequeue_runs", ids)).await?;
    Ok(claims)
}
