//! Which node delivers a run: this one, or another where the settings of this one forbid it. The owner of a partition still
//! decides when a run starts; it then hands the run over.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use everytick_domain::{
    ids::{Incarnation, JobId, RunId},
    job::Job,
    overlap::Open,
    time::DbTime,
};
use everytick_store::{ClaimedRun, WaitingRun};
use everytick_targets::{Capabilities, Needs, needs};

use super::{Memory, Planned, SlotUser};
use crate::{
    clock::MonoTime,
    settings::{FULL_DELEGATED_MAX, LEARNED_NEEDS_MAX},
};

/// What this node and the other living ones can deliver.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    own: Capabilities,
    others: Vec<(Incarnation, Capabilities)>,
    /// Nodes that no longer take work, and when each lease was last seen alive. One of them may be restarting.
    gone: BTreeMap<Incarnation, (Capabilities, MonoTime)>,
}

impl Routes {
    pub(crate) fn new(own: Capabilities) -> Self {
        Self { own, ..Self::default() }
    }

    /// Whether another node can do what this one cannot, so that its runs are handed over.
    pub(super) fn away(&self, needs: Option<Needs>) -> bool {
        needs.is_some_and(|needs| !self.own.meets(needs) && self.others.iter().any(|(_, can)| can.meets(needs)))
    }

    /// Whether no living node can do it, and one that can has stopped so recently that it may be restarting.
    pub(super) fn awaited(&self, needs: Option<Needs>) -> bool {
        let able = |needs| self.own.meets(needs) || self.others.iter().any(|(_, can)| can.meets(needs));
        needs.is_some_and(|needs| !able(needs) && self.gone.values().any(|(can, _)| can.meets(needs)))
    }

    /// Replaces the other nodes. `alive`: leases that have not expired, also of nodes that are about to stop.
    fn set_others(&mut self, others: Vec<(Incarnation, Capabilities)>, alive: &[Incarnation], patience: Duration) {
        let now = MonoTime::now();
        for (node, can) in std::mem::replace(&mut self.others, others) {
            self.gone.insert(node, (can, now));
        }
        let others = &self.others;
        self.gone.retain(|node, (_, seen)| {
            if alive.contains(node) {
                *seen = now;
            }
            now.since(*seen) < patience && !others.iter().any(|(other, _)| other == node)
        });
    }

    /// The node that delivers this run in place of this one. Runs are spread over all that can.
    fn node(&self, needs: Needs, run: RunId) -> Option<Incarnation> {
        if self.own.meets(needs) {
            return None;
        }
        let able: Vec<_> = self.others.iter().filter(|(_, can)| can.meets(needs)).collect();
        let place = usize::try_from(run.uuid().as_u128() % (able.len().max(1) as u128)).unwrap_or_default();
        able.get(place).map(|(node, _)| *node)
    }
}

impl Memory {
    pub(crate) fn with_routes(routes: Routes) -> Self {
        Self { routes, ..Self::default() }
    }

    /// The other living nodes that take work, and what each can deliver. Runs wait up to `patience` for a node that restarts.
    pub(crate) fn set_others(
        &mut self,
        others: Vec<(Incarnation, Capabilities)>,
        alive: &[Incarnation],
        patience: Duration,
    ) {
        self.routes.set_others(others, alive, patience);
    }

    /// Whether another living node differs in what it can deliver, and so may delegate runs to this one now.
    pub(crate) fn may_be_handed_runs(&self) -> bool {
        self.routes.others.iter().any(|(_, can)| *can != self.routes.own)
    }

    /// Of the chosen runs, those that another node delivers, each with that node.
    pub(crate) fn handed_over(&self, chosen: &[WaitingRun]) -> Vec<(RunId, Incarnation)> {
        let node = |run: &WaitingRun| Some((run.id, self.routes.node(self.jobs.get(&run.job)?.needs?, run.id)?));
        chosen.iter().filter_map(node).collect()
    }

    /// The chosen runs that were handed over are in progress elsewhere. What was not has changed behind our back.
    pub(crate) fn delegated(&mut self, asked: &[WaitingRun], handed: &[RunId]) {
        for run in asked {
            self.end_promise(run.job);
            self.answered(run.job);
            match self.jobs.get_mut(&run.job).filter(|_| handed.contains(&run.id)) {
                Some(entry) if !entry.counts_open() => {}
                Some(entry) => _ = entry.open.insert(run.id, Open { claimed: true, attempts: run.attempts + 1 }),
                None => self.doubt(run.job),
            }
        }
    }

    /// A delivery has shown what this node may not do for the job. Whether another node can, or could until recently: its runs go
    /// there from now on.
    pub(crate) fn learned(&mut self, job: JobId, needs: Needs) -> bool {
        if self.learned.len() >= LEARNED_NEEDS_MAX {
            self.learned.clear();
        }
        self.learned.insert(job, needs);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.needs = Some(needs);
        }
        self.routes.away(Some(needs)) || self.routes.awaited(Some(needs))
    }

    /// What deliveries of the job need. An edit (`changed`) may have given it another target.
    pub(super) fn needs_of(&mut self, job: &Job, changed: bool) -> Option<Needs> {
        if changed {
            self.learned.remove(&job.id);
        }
        self.learned.get(&job.id).copied().or_else(|| needs(&job.spec.target))
    }

    /// Whether delegated runs may wait for a slot that has become free.
    pub(crate) fn delegated_wait(&self) -> bool {
        self.delegated_wait
    }

    /// No slot is free, so the search for delegated runs was not made: the next free slot starts it.
    pub(crate) fn no_slot_for_delegated(&mut self) {
        self.delegated_wait = true;
    }

    /// Jobs with delegated runs that use all the slots they may: the search skips them, so that they hide no other job.
    pub(crate) fn full_delegated(&mut self, slots: usize) -> Vec<JobId> {
        let mut full = std::mem::take(&mut self.full_delegated);
        full.retain(|_, job| self.is_full(SlotUser::of(job), slots));
        self.full_delegated = full;
        self.delegated_wait = !self.full_delegated.is_empty();
        self.full_delegated.keys().copied().collect()
    }

    /// Promises slots to the delegated runs, as many as the limits per job and per destination allow. The others are left.
    pub(crate) fn choose_delegated(
        &mut self,
        found: Vec<WaitingRun>,
        jobs: &BTreeMap<JobId, Arc<Job>>,
        slots: usize,
    ) -> Chosen {
        let (mut chosen, full) = (Vec::new(), self.full_delegated.len());
        for run in found {
            // A run of a job that cannot be read could be neither delivered nor settled.
            let Some(job) = jobs.get(&run.job) else { continue };
            let user = SlotUser::of(job);
            if self.may_have_slot(user, slots) {
                self.promise_slot(user);
                chosen.push(run);
                continue;
            }
            self.delegated_wait = true;
            if self.full_delegated.len() < FULL_DELEGATED_MAX {
                self.full_delegated.insert(run.job, job.clone());
            }
        }
        Chosen { runs: chosen, more_full: self.full_delegated.len() > full }
    }

    /// Takes in the claims on delegated runs. `asked` were promised slots.
    pub(crate) fn took_over(&mut self, asked: &[WaitingRun], claimed: Vec<TakenOver>) -> Vec<Planned> {
        self.not_taken_over(asked, false);
        let mut hold = |taken: TakenOver| Planned { delegated: true, ..self.hold(taken.run, taken.job, taken.due_at) };
        claimed.into_iter().map(&mut hold).collect()
    }

    /// The claims on delegated runs were not committed, or with `unsure` may have been: then a claim that the database has was
    /// never sent.
    pub(crate) fn not_taken_over(&mut self, asked: &[WaitingRun], unsure: bool) {
        for run in asked {
            self.end_promise(run.job);
            if unsure {
                self.unsure_claim(run);
                self.unsure(run.job);
            }
        }
    }
}

/// The delegated runs that this node claims.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub runs: Vec<WaitingRun>,
    /// Runs of further jobs were left because their job uses all the slots it may.
    pub more_full: bool,
}

/// A run of a job that another node owns.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub run: ClaimedRun,
    pub job: Arc<Job>,
    pub due_at: DbTime,
}

#[cfg(test)]
mod tests {
    use everytick_domain::ids::Cause;
    use everytick_store::conformance::{TENANT, incarnation, job_id};

    use super::*;

    fn run(n: i64) -> RunId {
        RunId::of(job_id(TENANT, "j"), Cause::Tick(DbTime::from_millis(n)))
    }

    #[test]
    fn what_this_node_can_do_stays_and_the_rest_goes_to_those_who_can() {
        let (none, shell) = (Capabilities::default(), Capabilities::new(true, vec![]));
        let mut routes = Routes::new(none.clone());
        assert!(!routes.away(Some(Needs::Shell)), "nobody can: it is tried here, and fails with the reason");
        routes.others = vec![(incarnation(2), none), (incarnation(3), shell.clone()), (incarnation(4), shell.clone())];
        assert!(routes.away(Some(Needs::Shell)) && !routes.away(None));
        let mut nodes: Vec<_> = (0..100).filter_map(|n| routes.node(Needs::Shell, run(n))).collect();
        assert_eq!(nodes.len(), 100);
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes, [incarnation(3), incarnation(4)]);
        let able = Routes { own: shell, ..routes };
        assert!(!able.away(Some(Needs::Shell)) && able.node(Needs::Shell, run(1)).is_none());
    }
    #[tokio::test(start_paused = true)]
    async fn runs_wait_for_a_capable_node_until_it_has_been_gone_for_too_long() {
        let (patience, shell) = (Duration::from_secs(30), Capabilities::new(true, vec![]));
        let mut routes = Routes::new(Capabilities::default());
        routes.set_others(vec![(incarnation(2), shell.clone())], &[incarnation(2)], patience);
        assert!(!routes.awaited(Some(Needs::Shell)), "it lives");
        for _ in 0..3 {
            routes.set_others(vec![], &[incarnation(2)], patience);
            assert!(routes.awaited(Some(Needs::Shell)) && !routes.awaited(None), "it is about to stop");
            tokio::time::advance(patience).await;
        }
        routes.set_others(vec![], &[incarnation(2)], patience);
        tokio::time::advance(patience / 2).await;
        routes.set_others(vec![], &[], patience);
        assert!(routes.awaited(Some(Needs::Shell)));
        routes.set_others(vec![(incarnation(3), shell)], &[incarnation(3)], patience);
        assert!(!routes.awaited(Some(Needs::Shell)) && routes.away(Some(Needs::Shell)), "it has restarted");
        tokio::time::advance(patience).await;
        routes.set_others(vec![(incarnation(3), Capabilities::default())], &[], patience);
        tokio::time::advance(patience).await;
        routes.set_others(vec![], &[], patience);
        assert!(!routes.awaited(Some(Needs::Shell)), "an attempt is made, and fails with the reason");
    }
}
