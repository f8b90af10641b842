//! Delegates runs that this node cannot deliver to nodes that can, and claims the runs that other nodes delegated to this one.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::{Incarnation, JobId, RunId},
    job::Job,
    mutant::Mutant,
};
use everytick_store::{ClaimedRun, Lease, Result, WaitingRun};
use metrics::counter;
use tokio::sync::RwLockReadGuard;

use super::choose::{Next, claim_failed};
use crate::{
    cluster::unsure,
    dispatch::deliver,
    memory::{Chosen, DelegatedRun},
    pulse,
    settings::CLAIMS_PER_BATCH_MAX,
    shared::Shared,
};

/// Delegates runs to nodes that can deliver them. The next pass follows at once and claims the runs that this node delivers
/// itself.
pub(super) async fn delegate(
    shared: &Arc<Shared>,
    statement: RwLockReadGuard<'_, ()>,
    chosen: Vec<WaitingRun>,
    receivers: &[(RunId, Incarnation)],
) -> Next {
    let (to_delegate, own): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|run| receivers.iter().any(|(delegated, _)| *delegated == run.id));
    shared.memory().not_claimed(&own, false);
    let (lease, partitions) = (shared.lease(), shared.partitions());
    let call = shared.parts.store.delegate(&lease, &partitions, receivers);
    match shared.call("delegate runs to other nodes", call).await {
        Ok(delegated) => {
            counter!("everytick_runs_delegated_total").increment(delegated.len() as u64);
            shared.memory().delegated(&to_delegate, &delegated);
            Next::Now
        }
        Err(error) => claim_failed(shared, statement, &to_delegate, &error).await,
    }
}

/// How a search for delegated runs ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    Done,
    /// Runs of jobs at their slot limit may hide runs of other jobs. The next search skips those jobs.
    Hidden,
    /// No slot is free, so the search was not made.
    NoSlot,
    /// The store failed.
    Failed,
}

/// Claims runs that other nodes have delegated to this one, within the same slot limits as its own runs.
pub(super) async fn claim_delegated(shared: &Arc<Shared>) -> Search {
    let statement = pulse::untimed(shared.statements.read()).await;
    let slots = shared.parts.settings.slots;
    let (free, full) = {
        let mut memory = shared.memory();
        (memory.slots_free(slots).min(CLAIMS_PER_BATCH_MAX), memory.full_delegated(slots))
    };
    if free == 0 {
        return Search::NoSlot;
    }
    let lease = shared.lease();
    let (found, jobs) = match find_delegated(shared, &lease, &full, free).await {
        Ok((found, _)) if found.is_empty() => return Search::Done,
        Ok(found) => found,
        Err(error) => {
            unsure::report(shared, &error);
            return Search::Failed;
        }
    };
    let more = found.len() >= free;
    let Chosen { runs: chosen, more_full } = shared.memory().choose_delegated(found, &jobs, slots);
    let search = if more && more_full { Search::Hidden } else { Search::Done };
    if chosen.is_empty() {
        return search;
    }
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.call("claim runs", shared.parts.store.claim_delegated(&lease, &ids)).await {
        Ok(claimed) => {
            let of_job = |run: ClaimedRun| {
                let due_at = chosen.iter().find(|chosen| chosen.id == run.id)?.due_at;
                Some(DelegatedRun { job: jobs.get(&run.job)?.clone(), due_at, run })
            };
            let claimed = claimed.into_iter().filter_map(of_job).collect();
            let send = shared.memory().delegated_claimed(&chosen, claimed);
            for claimed in send {
                deliver::start(shared, claimed);
            }
            search
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().delegated_not_claimed(&chosen, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            Search::Failed
        }
    }
}

type Jobs = BTreeMap<JobId, Arc<Job>>;

/// Reads the runs delegated to this node and their jobs. Skips the runs of the jobs in `full`.
async fn find_delegated(
    shared: &Shared,
    lease: &Lease,
    full: &[JobId],
    limit: usize,
) -> Result<(Vec<WaitingRun>, Jobs)> {
    let store = &shared.parts.store;
    let found = shared.read("find delegated runs", store.peek_delegated(lease, full, limit)).await?;
    if found.is_empty() {
        return Ok((found, Jobs::new()));
    }
    let mut ids: Vec<_> = found.iter().map(|run| run.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let jobs = shared.read("load jobs", store.load_jobs(&ids)).await?;
    Ok((found, jobs.into_iter().map(|loaded| (loaded.job.id, loaded.job)).collect()))
}
