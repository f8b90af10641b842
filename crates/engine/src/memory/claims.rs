//! Which of the waiting runs to start, and the claims that came of it.

use std::collections::BTreeMap;

use everytick_domain::ids::{JobId, RunId};
use everytick_store::{ClaimedRun, Waiting, WaitingRun};

use super::{
    Memory, Planned,
    entry::{Entry, Open},
};

impl Memory {
    /// Jobs that may not start another run and have one waiting: looking at those would find nothing to do.
    pub(crate) fn busy(&self) -> Vec<JobId> {
        self.jobs
            .iter()
            .filter(|(_, entry)| {
                let blocked = |(run, open): (&RunId, &Open)| !open.in_progress() && !entry.may_start(*run);
                entry.job.spec.open_max().is_some() && entry.open.iter().any(blocked)
            })
            .map(|(id, _)| *id)
            .chain(self.missing.iter().copied())
            .collect()
    }

    /// Reads again the jobs whose waiting runs are blocked by one that is in progress elsewhere: nobody tells us of its end.
    pub(crate) fn doubt_blocked(&mut self) {
        for job in self.busy() {
            let elsewhere =
                |entry: &Entry| entry.open.iter().any(|(run, open)| open.claimed && !self.held.contains_key(run));
            if self.jobs.get(&job).is_some_and(elsewhere) {
                self.doubt(job);
            }
        }
    }

    /// Chooses among what is due. Runs of jobs we do not know are wanted first; runs of a job that has as many in progress
    /// as it may have stay; late ones stay when their rate is spent.
    pub(crate) fn choose(&mut self, waiting: &Waiting, slots: usize, mut late_budget: usize) -> Vec<WaitingRun> {
        let mut free = self.slots_free(slots);
        let mut started: BTreeMap<JobId, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        let mut left = false;
        for run in &waiting.due {
            let Some(entry) = self.jobs.get_mut(&run.job) else {
                if !self.missing.contains(&run.job) {
                    self.wanted.insert(run.job);
                }
                continue;
            };
            if entry.stale {
                continue;
            }
            let known = entry.open.entry(run.id).or_insert(Open { claimed: false, attempts: run.attempts });
            if known.claimed {
                // It waits, and we thought it claimed: unless it is ours, what we read was older than its loss.
                if !self.held.contains_key(&run.id) {
                    self.doubt(run.job);
                }
                continue;
            }
            known.attempts = run.attempts;
            let starting = started.entry(run.job).or_default();
            let max = entry.job.spec.open_max().map(|max| max as usize);
            // A tick that is being recorded may be in progress before we know: its answer wakes us.
            if max.is_some() && entry.recording {
                self.deferred = true;
                continue;
            }
            if !run.force && max.is_some_and(|max| entry.in_progress_besides(run.id) + *starting >= max) {
                continue;
            }
            if run.late && late_budget == 0 {
                continue;
            }
            if free == 0 {
                left |= !run.late;
                continue;
            }
            late_budget -= usize::from(run.late);
            free -= 1;
            *starting += 1;
            entry.under_way += 1;
            self.reserved += 1;
            chosen.push(*run);
        }
        self.backlog = left;
        chosen
    }

    /// Whether something was not chosen because an answer was awaited.
    pub(crate) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred)
    }

    pub(crate) fn no_slot(&mut self, waits: bool) {
        self.backlog = waits;
    }

    /// Takes in the claims that were committed. What we asked for and did not get has changed behind our back.
    pub(crate) fn claimed(&mut self, asked: &[WaitingRun], got: Vec<ClaimedRun>) -> Vec<Planned> {
        let mut got: BTreeMap<_, _> = got.into_iter().map(|run| (run.id, run)).collect();
        let mut send = Vec::new();
        for run in asked {
            self.reserved -= 1;
            self.answered(run.job);
            let Some(claimed) = got.remove(&run.id) else {
                self.doubt(run.job);
                continue;
            };
            let Some(entry) = self.jobs.get_mut(&run.job) else { continue };
            entry.open.insert(run.id, Open { claimed: true, attempts: claimed.attempt });
            let job = entry.job.clone();
            send.push(self.hold(claimed, job, run.due_at));
        }
        send
    }

    pub(crate) fn unclaimed(&mut self, asked: &[WaitingRun], unsure: bool) {
        for run in asked {
            self.reserved -= 1;
            self.answered(run.job);
            if unsure {
                self.unsure(run.job);
            }
        }
    }
}
