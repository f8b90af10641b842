//! Claims runs of a queue for a worker. Within one node, `line` directs concurrent claims to different runs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use everytick_domain::{
    ids::{Epoch, JobId, RunId},
    job::Job,
    queue::{CLAIM_RUNS_MAX, Candidate, JobLoad, choose},
};
use uuid::Uuid;

use super::{
    super::{DbTx, Failed, PostgresStore, definitions, is_locked, rows},
    claims::{BEGINNING, Place, budget, candidate, load},
    line::{Turn, Wanted},
    take::{free_runs, take, take_one_by_one},
};
use crate::{CLAIM_PAGE_MIN, CLAIM_PAGES_MAX, CLAIM_ROUNDS_MAX, ClaimQueue, QueueClaims, Result};

const CLAIMING: &str = "claim from a queue";

/// A claim waits only briefly for a job or run that another session has locked. Then it starts again and skips locked
/// rows, so that the queue's other runs are served.
pub(super) async fn claim_queue(store: &PostgresStore, ask: &ClaimQueue) -> Result<QueueClaims> {
    let claimed = match claim_once(store, ask, false, false).await {
        Err(error) if is_locked(&error) => claim_once(store, ask, true, false).await,
        claimed => claimed,
    };
    match claimed {
        // One run makes the claim fail: claim each run on its own, and leave that one out.
        Err(error) if error.is_for_its_data() => claim_once(store, ask, true, true).await,
        claimed => claimed,
    }
}

async fn claim_once(
    store: &PostgresStore,
    ask: &ClaimQueue,
    skip_locked: bool,
    one_by_one: bool,
) -> Result<QueueClaims> {
    let line = store.lines.at(ask.tenant, &ask.queue);
    // Before any lock is taken or a connection is used.
    let turn = line.turn(ask.limit.min(CLAIM_RUNS_MAX)).await;
    let mut look = Look {
        place: BEGINNING,
        behind_others: false,
        beside_others: false,
        turn,
        wanted: None,
        skip_locked,
        one_by_one,
    };
    // The lock on a queue's limits cannot be skipped: the second attempt waits for it with the full timeout.
    let mut write = store.of(ask.tenant).write_in_order(!skip_locked, CLAIMING).await?;
    let done = claim_in(store, &mut write, ask, &mut look).await;
    write.finish(done).await
}

async fn claim_in(
    store: &PostgresStore,
    write: &mut DbTx,
    ask: &ClaimQueue,
    look: &mut Look<'_>,
) -> Result<QueueClaims> {
    let limits = query!("queue/lock_queue_limits", ask.tenant.raw(), &ask.queue);
    let budget = budget(write, ask, limits).await?;
    let remaining = budget.runs;
    let mut locked = LockedJobs::default();
    let mut claims = Vec::new();
    // Claims of several nodes choose among the same runs. If others took some of the chosen runs, the claim chooses
    // again after them.
    for round in 0..CLAIM_ROUNDS_MAX {
        let chosen = choose_runs(store, write, ask, remaining - claims.len(), &mut locked, look, round == 0).await?;
        let count = chosen.len();
        let chosen = if look.skip_locked { free_runs(store, write, chosen).await? } else { chosen };
        let taken = if look.one_by_one {
            take_one_by_one(store, write, ask, &chosen, &locked).await?
        } else {
            take(store, write, ask, &chosen, &locked).await?
        };
        let mut missed = taken.len() < count;
        claims.extend(taken);
        if claims.len() < remaining && (look.behind_others || locked.left_out) {
            // Some runs could not be claimed, or were not read: earlier ones may exist, so search from the beginning.
            look.begin_anew();
            locked.left_out = false;
            missed = true;
        }
        if !missed || claims.len() >= remaining {
            break;
        }
    }
    budget.spend(write, ask, claims.len()).await?;
    Ok(QueueClaims { now: write.now, claims })
}

/// The jobs whose runs are candidates. They are locked, so no edit changes them meanwhile.
#[derive(Default)]
pub(super) struct LockedJobs {
    /// All of them, with their epochs. The definition of an unguarded job is read when one of its runs is chosen.
    epochs: BTreeMap<JobId, Epoch>,
    pub(super) jobs: HashMap<JobId, Arc<Job>>,
    /// For guarded jobs: those with a limit on runs in progress, or with a concurrency key (`is_guarded`).
    loads: BTreeMap<JobId, JobLoad>,
    /// Runs superseded by newer ones.
    gone: BTreeSet<RunId>,
    /// Guarded jobs were found.
    ordered: bool,
    /// None of their runs was claimed, because the search left out runs that other claims had read or are about to take:
    /// an older run may be among them.
    left_out: bool,
}

async fn choose_runs(
    store: &PostgresStore,
    write: &mut DbTx,
    ask: &ClaimQueue,
    remaining: usize,
    locked: &mut LockedJobs,
    look: &mut Look<'_>,
    first: bool,
) -> Result<Vec<RunId>> {
    let mut chosen = Vec::new();
    for page in 0..CLAIM_PAGES_MAX {
        if chosen.len() >= remaining {
            break;
        }
        // Most queues yield all that is requested, so only later pages read more than needed.
        let size = if page == 0 { remaining } else { ((remaining - chosen.len()) * 2).max(CLAIM_PAGE_MIN << page) };
        let candidates = if first && page == 0 {
            first_page(write, ask, look, size).await?
        } else {
            page_behind(write, ask, locked, look, size).await?
        };
        let last = candidates.len() < size;
        lock_jobs(store, write, &candidates, locked, first && page == 0 && !look.skip_locked, look.is_of_a_part())
            .await?;
        if locked.ordered
            && let Some(wanted) = &look.wanted
        {
            wanted.came_upon_order(write.now);
        }
        let open =
            |candidate: &Candidate| locked.epochs.contains_key(&candidate.job) && !locked.gone.contains(&candidate.run);
        let known: Vec<_> = candidates.into_iter().filter(open).collect();
        let of: HashMap<RunId, JobId> = known.iter().map(|candidate| (candidate.run, candidate.job)).collect();
        let picked = choose(&known, &mut locked.loads, remaining - chosen.len());
        let jobs: BTreeSet<JobId> = picked.iter().filter_map(|run| of.get(run).copied()).collect();
        define(store, write, &jobs, locked).await?;
        // A run whose definition cannot be decoded stays in the queue.
        let readable = |run: &RunId| of.get(run).is_some_and(|job| locked.jobs.contains_key(job));
        chosen.extend(picked.into_iter().filter(readable));
        if last {
            break;
        }
    }
    Ok(chosen)
}

/// Reads the definitions of these jobs unless they are known.
async fn define(
    store: &PostgresStore,
    write: &mut DbTx,
    jobs: &BTreeSet<JobId>,
    locked: &mut LockedJobs,
) -> Result<()> {
    let new = jobs.iter().filter(|job| !locked.jobs.contains_key(job));
    let asked: Vec<(JobId, Epoch)> = new.filter_map(|job| Some((*job, *locked.epochs.get(job)?))).collect();
    locked.jobs.extend(definitions::of(store, write, &asked).await?);
    Ok(())
}

/// The position and the mode of a claim's search.
struct Look<'l> {
    place: Place,
    /// It began after the runs that other claims of this node had read.
    behind_others: bool,
    /// It left out runs that other claims of this node are about to take.
    beside_others: bool,
    turn: Option<Turn<'l>>,
    /// The runs that it is about to take; released after the commit.
    wanted: Option<Wanted>,
    /// It skips jobs and runs that another session has locked.
    skip_locked: bool,
    /// It claims each run on its own, because one of them makes the claim fail.
    one_by_one: bool,
}

impl Look<'_> {
    const fn is_of_a_part(&self) -> bool {
        self.behind_others || self.beside_others
    }

    fn begin_anew(&mut self) {
        (self.place, self.behind_others, self.beside_others) = (BEGINNING, false, false);
    }
}

/// The first page, after the runs that other claims of this node have just read; from the beginning if that yields too
/// few.
async fn first_page(write: &mut DbTx, ask: &ClaimQueue, look: &mut Look<'_>, size: usize) -> Result<Vec<Candidate>> {
    let now = write.now;
    let Some(turn) = look.turn.take().filter(|turn| !turn.is_ordered(now)) else {
        return page_behind(write, ask, &LockedJobs::default(), look, size).await;
    };
    let wanted = turn.wanted();
    let mut from = turn.behind(now).unwrap_or(BEGINNING);
    let mut candidates = free_page(write, ask, look, from, &wanted, size).await?;
    if candidates.len() < size && from != BEGINNING {
        from = BEGINNING;
        candidates = free_page(write, ask, look, from, &wanted, size).await?;
    }
    (look.behind_others, look.beside_others) = (from != BEGINNING, !wanted.is_empty());
    let runs = candidates.iter().map(|candidate| candidate.run).collect();
    look.wanted = Some(turn.done(from, look.place, now, runs));
    Ok(candidates)
}

/// A page of runs that no other claim of this node is about to take.
async fn free_page(
    write: &mut DbTx,
    ask: &ClaimQueue,
    look: &mut Look<'_>,
    from: Place,
    wanted: &HashSet<RunId>,
    size: usize,
) -> Result<Vec<Candidate>> {
    // After the other claims' position there are no runs that they are about to take.
    let more = if from == BEGINNING { wanted.len() } else { 0 };
    let mut found = peek(write, ask, &LockedJobs::default(), from, size + more).await?;
    found.retain(|(_, candidate)| !wanted.contains(&candidate.run));
    found.truncate(size);
    look.place = found.last().map_or(from, |(place, _)| *place);
    Ok(found.into_iter().map(|(_, candidate)| candidate).collect())
}

/// The next page, after the runs that this claim has read.
async fn page_behind(
    write: &mut DbTx,
    ask: &ClaimQueue,
    locked: &LockedJobs,
    look: &mut Look<'_>,
    size: usize,
) -> Result<Vec<Candidate>> {
    let found = peek(write, ask, locked, look.place, size).await?;
    look.place = found.last().map_or(look.place, |(place, _)| *place);
    Ok(found.into_iter().map(|(_, candidate)| candidate).collect())
}

/// The waiting runs after `place`, each with its position.
async fn peek(
    write: &mut DbTx,
    ask: &ClaimQueue,
    locked: &LockedJobs,
    place: Place,
    size: usize,
) -> Result<Vec<(Place, Candidate)>> {
    let full = locked.loads.iter().filter(|(_, load)| load.is_full()).map(|(job, _)| *job);
    let of_job = |(job, load): (&JobId, &JobLoad)| {
        load.full_keys().into_iter().map(|key| (job.uuid(), key.to_owned())).collect::<Vec<_>>()
    };
    let (key_jobs, keys): (Vec<Uuid>, Vec<String>) = locked.loads.iter().flat_map(of_job).unzip();
    let found = write
        .fetch_all(query!(
            "queue/queue_peek",
            ask.tenant.raw(),
            &ask.queue,
            write.now.millis(),
            place.0,
            place.1,
            rows::sorted_job_ids(full),
            rows::limit(size),
            key_jobs,
            keys,
            rows::job_ids(write.unreadable.jobs_aside()),
            rows::run_ids(write.unreadable.runs_aside())
        ))
        .await?;
    Ok(write.unreadable.each("waiting", &found, candidate))
}

/// Share-locks the jobs of these runs against edits. Guarded jobs are also locked against other claims, but only if the
/// search is not limited to a part of the queue. Only the first page waits for the locks: a later page already has
/// locks, and waiting out of order could deadlock.
async fn lock_jobs(
    store: &PostgresStore,
    write: &mut DbTx,
    candidates: &[Candidate],
    locked: &mut LockedJobs,
    wait: bool,
    part: bool,
) -> Result<()> {
    let new: BTreeSet<JobId> =
        candidates.iter().map(|candidate| candidate.job).filter(|job| !locked.epochs.contains_key(job)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let shared: Vec<(Uuid, bool, i64)> =
        sqlx::query_as(if wait { sql!("epochs/epochs_shared") } else { sql!("queue/epochs_shared_free") })
            .bind(rows::job_ids(new.iter().copied()))
            .fetch_all(&mut *write.tx)
            .await
            .failed(CLAIMING)?;
    let epochs: HashMap<Uuid, Epoch> = shared.iter().map(|(job, _, epoch)| (*job, Epoch::from_raw(*epoch))).collect();
    let (guarded, free): (Vec<_>, Vec<_>) = shared.into_iter().partition(|(_, guarded, _)| *guarded);
    locked.epochs.extend(free.iter().map(|(job, _, epoch)| (JobId::from_uuid(*job), Epoch::from_raw(*epoch))));
    let mut guarded: Vec<Uuid> = guarded.into_iter().map(|(job, ..)| job).collect();
    locked.ordered |= !guarded.is_empty();
    if part && !guarded.is_empty() {
        locked.left_out = true;
        guarded.clear();
    }
    if !guarded.is_empty() {
        let statement = if wait { sql!("epochs/epochs_guarded") } else { sql!("queue/epochs_guarded_free") };
        guarded = sqlx::query_scalar(statement).bind(guarded).fetch_all(&mut *write.tx).await.failed(CLAIMING)?;
    }
    // Locked since the share lock was taken: no edit came in between.
    let asked: Vec<(JobId, Epoch)> =
        guarded.iter().filter_map(|job| Some((JobId::from_uuid(*job), *epochs.get(job)?))).collect();
    let guarded: BTreeSet<JobId> = asked.iter().map(|(job, _)| *job).collect();
    let epochs: BTreeMap<JobId, Epoch> = asked.iter().copied().collect();
    for (id, job) in definitions::of(store, write, &asked).await? {
        locked.epochs.extend(epochs.get(&id).map(|epoch| (id, *epoch)));
        locked.loads.insert(id, JobLoad::of(&job.spec));
        locked.jobs.insert(id, job);
    }
    let guarded: Vec<JobId> = guarded.into_iter().collect();
    locked.gone.extend(load(write, &guarded, &locked.jobs, &mut locked.loads).await?);
    Ok(())
}
