//! Which node delivers a run: this node, or another one if this node's settings forbid it. The owner of the partition still
//! decides when the run starts; then it delegates the run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use everytick_domain::{
    ids::{Incarnation, JobId, RunId},
    job::Job,
    overlap::Open,
    time::DbTime,
};
use everytick_store::{ClaimedRun, WaitingRun};
use everytick_targets::{Capabilities, Needs, needs};

use super::{Claimed, Memory, SlotUser};
use crate::{
    clock::MonoTime,
    settings::{FULL_DELEGATED_MAX, LEARNED_NEEDS_MAX},
};

/// What this node and the other live nodes can deliver.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    own: Capabilities,
    others: Vec<(Incarnation, Capabilities)>,
    /// Nodes that no longer accept work, each with the time at which its lease was last seen alive. Such a node may be
    /// restarting.
    gone: BTreeMap<Incarnation, (Capabilities, MonoTime)>,
}

impl Routes {
    pub(crate) fn new(own: Capabilities) -> Self {
        Self { own, ..Self::default() }
    }

    /// Whether runs with these needs are delegated: this node cannot deliver them and another one can.
    pub(super) fn delegates(&self, needs: Option<Needs>) -> bool {
        needs.is_some_and(|needs| !self.own.meets(needs) && self.others.iter().any(|(_, can)| can.meets(needs)))
    }

    /// Whether runs with these needs wait for a node that may be restarting: no live node can deliver them, and a node
    /// that could has stopped recently.
    pub(super) fn awaits_restart(&self, needs: Option<Needs>) -> bool {
        let able = |needs| self.own.meets(needs) || self.others.iter().any(|(_, can)| can.meets(needs));
        needs.is_some_and(|needs| !able(needs) && self.gone.values().any(|(can, _)| can.meets(needs)))
    }

    /// Replaces the other nodes. `alive`: leases that have not expired, including those of stopping nodes.
    fn set_others(&mut self, others: Vec<(Incarnation, Capabilities)>, alive: &[Incarnation], restart_max: Duration) {
        let now = MonoTime::now();
        for (node, can) in std::mem::replace(&mut self.others, others) {
            self.gone.insert(node, (can, now));
        }
        let others = &self.others;
        self.gone.retain(|node, (_, seen)| {
            if alive.contains(node) {
                *seen = now;
            }
            now.since(*seen) < restart_max && !others.iter().any(|(other, _)| other == node)
        });
    }

    /// The node to which this run is delegated; `None` if this node delivers it. Runs are spread over all nodes that
    /// can deliver them.
    fn node(&self, needs: Needs, run: RunId) -> Option<Incarnation> {
        if self.own.meets(needs) {
            return None;
        }
        let able: Vec<_> = self.others.iter().filter(|(_, can)| can.meets(needs)).collect();
        let index = usize::try_from(run.uuid().as_u128() % (able.len().max(1) as u128)).unwrap_or_default();
        able.get(index).map(|(node, _)| *node)
    }
}

impl Memory {
    pub(crate) fn with_routes(routes: Routes) -> Self {
        Self { routes, ..Self::default() }
    }

    /// Sets the other live nodes that accept work, and what each can deliver. Runs wait up to `restart_max` for a node that
    /// restarts.
    pub(crate) fn set_others(
        &mut self,
        others: Vec<(Incarnation, Capabilities)>,
        alive: &[Incarnation],
        restart_max: Duration,
    ) {
        self.routes.set_others(others, alive, restart_max);
    }

    /// Whether another live node differs in what it can deliver, and so may delegate runs to this one now.
    pub(crate) fn may_receive_runs(&self) -> bool {
        self.routes.others.iter().any(|(_, can)| *can != self.routes.own)
    }

    /// The chosen runs that another node delivers, each with that node.
    pub(crate) fn to_delegate(&self, chosen: &[WaitingRun]) -> Vec<(RunId, Incarnation)> {
        let node = |run: &WaitingRun| Some((run.id, self.routes.node(self.jobs.get(&run.job)?.needs?, run.id)?));
        chosen.iter().filter_map(node).collect()
    }

    /// Applies the delegation: the runs in `delegated` are now in progress on other nodes. A run that was not delegated has
    /// changed in the database, so its job is reloaded.
    pub(crate) fn delegated(&mut self, requested: &[WaitingRun], delegated: &[RunId]) {
        for run in requested {
            self.end_reservation(run.job);
            self.answered(run.job);
            match self.jobs.get_mut(&run.job).filter(|_| delegated.contains(&run.id)) {
                Some(entry) if !entry.counts_open() => {}
                Some(entry) => _ = entry.open.insert(run.id, Open { claimed: true, attempts: run.attempts + 1 }),
                None => self.mark_stale(run.job),
            }
        }
    }

    /// Notes what deliveries of the job need, after a delivery that the settings of this node forbade. Returns whether another
    /// node can deliver the job, or could until recently: then the job's runs are delegated from now on.
    pub(crate) fn learn_needs(&mut self, job: JobId, needs: Needs) -> bool {
        if self.learned_needs.len() >= LEARNED_NEEDS_MAX {
            self.learned_needs.clear();
        }
        self.learned_needs.insert(job, needs);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.needs = Some(needs);
        }
        self.routes.delegates(Some(needs)) || self.routes.awaits_restart(Some(needs))
    }

    /// What deliveries of the job need. An edit (`changed`) may have given it another target.
    pub(super) fn needs_of(&mut self, job: &Job, changed: bool) -> Option<Needs> {
        if changed {
            self.learned_needs.remove(&job.id);
        }
        self.learned_needs.get(&job.id).copied().or_else(|| needs(&job.spec.target))
    }

    /// Whether delegated runs may wait for a slot that has become free.
    pub(crate) fn delegated_wait(&self) -> bool {
        self.delegated_wait
    }

    /// Notes that delegated runs were not searched, because no slot is free. The next free slot starts the search.
    pub(crate) fn no_slot_for_delegated(&mut self) {
        self.delegated_wait = true;
    }

    /// Jobs at their slot limit that have delegated runs. The search skips them, so that they do not hide runs of other jobs.
    pub(crate) fn full_delegated(&mut self, slots: usize) -> Vec<JobId> {
        let mut full = std::mem::take(&mut self.full_delegated);
        full.retain(|_, job| self.is_at_slot_limit(SlotUser::of(job), slots));
        self.full_delegated = full;
        self.delegated_wait = !self.full_delegated.is_empty();
        self.full_delegated.keys().copied().collect()
    }

    /// Reserves slots for delegated runs, as far as the limits per job and per destination allow. The others keep waiting.
    pub(crate) fn choose_delegated(
        &mut self,
        found: Vec<WaitingRun>,
        jobs: &BTreeMap<JobId, Arc<Job>>,
        slots: usize,
    ) -> Chosen {
        let (mut chosen, full) = (Vec::new(), self.full_delegated.len());
        for run in found {
            // A run whose job cannot be loaded could be neither delivered nor settled.
            let Some(job) = jobs.get(&run.job) else { continue };
            let user = SlotUser::of(job);
            if self.may_have_slot(user, slots) {
                self.reserve_slot(user);
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

    /// Applies the claims on delegated runs. Slots were reserved for `requested`.
    pub(crate) fn delegated_claimed(&mut self, requested: &[WaitingRun], claimed: Vec<DelegatedRun>) -> Vec<Claimed> {
        self.delegated_not_claimed(requested, false);
        let mut add =
            |taken: DelegatedRun| Claimed { delegated: true, ..self.add_claim(taken.run, taken.job, taken.due_at) };
        claimed.into_iter().map(&mut add).collect()
    }

    /// Releases the reservations of delegated runs that were not claimed. With `unsure`, the claims may have been
    /// committed; their runs were never sent.
    pub(crate) fn delegated_not_claimed(&mut self, requested: &[WaitingRun], unsure: bool) {
        for run in requested {
            self.end_reservation(run.job);
            if unsure {
                self.unsure_claim(run);
                self.mark_unsure(run.job);
            }
        }
    }
}

/// The delegated runs that this node claims.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub runs: Vec<WaitingRun>,
    /// Whether more jobs than before were found to be at their slot limit.
    pub more_full: bool,
}

/// A run of a job that another node owns.
#[derive(Debug)]
pub(crate) struct DelegatedRun {
    pub run: ClaimedRun,
    pub job: Arc<Job>,
    pub due_at: DbTime,
}

#[cfg(test)]
mod tests {
    use everytick_domain::{ids::Cause, target::TargetKind};
    use everytick_store::conformance::{TENANT, incarnation, job_id};

    use super::*;

    const SHELL: Needs = Needs::Kind(TargetKind::Shell);

    fn run(n: i64) -> RunId {
        RunId::of(job_id(TENANT, "j"), Cause::Tick(DbTime::from_millis(n)))
    }

    #[test]
    fn a_run_is_delegated_only_if_this_node_cannot_deliver_it_and_another_can() {
        let (none, shell) = (Capabilities::default(), Capabilities::new(&[TargetKind::Shell], vec![]));
        let mut routes = Routes::new(none.clone());
        assert!(!routes.delegates(Some(SHELL)), "no node can: the attempt is made here and fails with the reason");
        routes.others = vec![(incarnation(2), none), (incarnation(3), shell.clone()), (incarnation(4), shell.clone())];
        assert!(routes.delegates(Some(SHELL)) && !routes.delegates(None));
        let mut nodes: Vec<_> = (0..100).filter_map(|n| routes.node(SHELL, run(n))).collect();
        assert_eq!(nodes.len(), 100);
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes, [incarnation(3), incarnation(4)]);
        let able = Routes { own: shell, ..routes };
        assert!(!able.delegates(Some(SHELL)) && able.node(SHELL, run(1)).is_none());
    }
    #[tokio::test(start_paused = true)]
    async fn runs_wait_for_a_capable_node_until_it_has_been_gone_for_too_long() {
        let (restart_max, shell) = (Duration::from_secs(30), Capabilities::new(&[TargetKind::Shell], vec![]));
        let mut routes = Routes::new(Capabilities::default());
        routes.set_others(vec![(incarnation(2), shell.clone())], &[incarnation(2)], restart_max);
        assert!(!routes.awaits_restart(Some(SHELL)), "the node lives");
        for _ in 0..3 {
            routes.set_others(vec![], &[incarnation(2)], restart_max);
            assert!(routes.awaits_restart(Some(SHELL)) && !routes.awaits_restart(None), "the node is stopping");
            tokio::time::advance(restart_max).await;
        }
        routes.set_others(vec![], &[incarnation(2)], restart_max);
        tokio::time::advance(restart_max / 2).await;
        routes.set_others(vec![], &[], restart_max);
        assert!(routes.awaits_restart(Some(SHELL)));
        routes.set_others(vec![(incarnation(3), shell)], &[incarnation(3)], restart_max);
        assert!(!routes.awaits_restart(Some(SHELL)) && routes.delegates(Some(SHELL)), "the node has restarted");
        tokio::time::advance(restart_max).await;
        routes.set_others(vec![(incarnation(3), Capabilities::default())], &[], restart_max);
        tokio::time::advance(restart_max).await;
        routes.set_others(vec![], &[], restart_max);
        assert!(!routes.awaits_restart(Some(SHELL)), "the attempt is made here and fails with the reason");
    }
}
