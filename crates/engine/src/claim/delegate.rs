//! Delegation: hands runs that this node cannot deliver to nodes that can, and claims the runs that other nodes delegated to
//! this one.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::{Incarnation, RunId},
    mutant::Mutant,
};
use everytick_store::{ClaimedRun, WaitingRun};
use metrics::counter;
use tokio::sync::RwLockReadGuard;

use super::choose::{Next, unclaimed};
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
    away: &[(RunId, Incarnation)],
) -> Next {
    let (asked, stay): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|run| away.iter().any(|(handed, _)| *handed == run.id));
    shared.memory().unclaimed(&stay, false);
    let (lease, partitions) = (shared.lease(), shared.partitions());
    match shared.ask("delegate runs to other nodes", shared.parts.store.delegate(&lease, &partitions, away)).await {
        Ok(handed) => {
            counter!("everytick_runs_delegated_total").increment(handed.len() as u64);
            shared.memory().delegated(&asked, &handed);
            Next::Now
        }
        Err(error) => unclaimed(shared, statement, &asked, &error).await,
    }
}

/// How a search for delegated runs ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOver {
    Searched,
    /// Runs of jobs at their slot limit may hide runs of other jobs. The next search skips those jobs.
    Hidden,
    /// No slot is free, so the search was not made.
    NoSlot,
    /// The store failed.
    Failed,
}

/// Claims runs that other nodes have delegated to this one, within the same slot limits as its own runs.
pub(super) async fn take_over(shared: &Arc<Shared>) -> TakeOver {
    let statement = pulse::excused(shared.statements.read()).await;
    let slots = shared.parts.settings.slots;
    let (free, full) = {
        let mut memory = shared.memory();
        (memory.slots_free(slots).min(CLAIMS_PER_BATCH_MAX), memory.full_delegated(slots))
    };
    if free == 0 {
        return TakeOver::NoSlot;
    }
    let (lease, store) = (shared.lease(), &shared.parts.store);
    let asked = store.peek_delegated(&lease, &full, free);
    let found = match shared.read("find delegated runs", asked).await {
        Ok(found) if found.is_empty() => return TakeOver::Searched,
        Ok(found) => found,
        Err(error) => {
            unsure::report(shared, &error);
            return TakeOver::Failed;
        }
    };
    let mut ids: Vec<_> = found.iter().map(|run| run.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let jobs = match shared.read("load jobs", store.load_jobs(&ids)).await {
        Ok(jobs) => jobs,
        Err(error) => {
            unsure::report(shared, &error);
            return TakeOver::Failed;
        }
    };
    let jobs: BTreeMap<_, _> = jobs.into_iter().map(|loaded| (loaded.job.id, loaded.job)).collect();
    let more = found.len() >= free;
    let Chosen { runs: chosen, more_full } = shared.memory().choose_delegated(found, &jobs, slots);
    let ended = if more && more_full { TakeOver::Hidden } else { TakeOver::Searched };
    if chosen.is_empty() {
        return ended;
    }
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.ask("claim runs", store.claim_delegated(&lease, &ids)).await {
        Ok(claimed) => {
            let taken = |run: ClaimedRun| {
                let due_at = chosen.iter().find(|asked| asked.id == run.id)?.due_at;
                Some(DelegatedRun { job: jobs.get(&run.job)?.clone(), due_at, run })
            };
            let taken = claimed.into_iter().filter_map(taken).collect();
            let send = shared.memory().delegated_claimed(&chosen, taken);
            for claimed in send {
                deliver::start(shared, claimed);
            }
            ended
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().delegated_unclaimed(&chosen, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            TakeOver::Failed
        }
    }
}
