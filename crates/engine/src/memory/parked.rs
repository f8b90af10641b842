//! Parks ticks for a moment if their destination is at its slot limit. Most receivers answer in milliseconds, and a tick that is
//! recorded when a slot is free costs half as much as a tick that is recorded as a waiting run. Ticks of other destinations do
//! not wait.

use std::{collections::BTreeSet, time::Duration};

use everytick_domain::{ids::JobId, target::Destination, time::DbTime};

use super::{Memory, planning::worth_a_batch};
use crate::{
    clock::MonoTime,
    settings::{PARK_MAX, SLOT_WAIT_MAX},
};

/// The ticks of the full destination. Two destinations cannot be full at once, because the limit of one is most of the slots.
#[derive(Debug)]
pub(super) struct Parked {
    destination: Destination,
    /// The time since which no tick has got a slot.
    since: MonoTime,
    ticks: BTreeSet<(DbTime, JobId)>,
}

impl Memory {
    /// Removes a due tick from the timers until its destination has a slot for it. Returns `false` if its run is to be recorded
    /// as waiting: runs of the destination wait already, or no slot became free for `SLOT_WAIT_MAX`.
    pub(super) fn park(&mut self, tick: DbTime, job: JobId, destination: Destination) -> bool {
        if self.queued_destination == Some(destination) {
            return false;
        }
        let now = MonoTime::now();
        if self.parked.as_ref().is_some_and(|parked| parked.destination != destination) {
            self.unpark(usize::MAX);
        }
        let new = || Parked { destination, since: now, ticks: BTreeSet::new() };
        let parked = self.parked.get_or_insert_with(new);
        if now.since(parked.since) >= SLOT_WAIT_MAX {
            return false;
        }
        if self.jobs.get_mut(&job).is_some_and(|entry| entry.set_timer(tick)) {
            parked.ticks.insert((tick, job));
        }
        true
    }

    /// Whether older ticks of the destination are parked. A newer one must not take the slot that they wait for.
    pub(super) fn parked_before(&self, tick: DbTime, job: JobId, destination: Destination) -> bool {
        let parked = self.parked.as_ref().filter(|parked| parked.destination == destination);
        parked.and_then(|parked| parked.ticks.first()).is_some_and(|oldest| *oldest < (tick, job))
    }

    /// Removes a parked tick, for example because its job is stale.
    pub(super) fn remove_parked(&mut self, tick: DbTime, job: JobId) {
        if let Some(parked) = &mut self.parked {
            parked.ticks.remove(&(tick, job));
        }
    }

    /// Returns parked ticks to the timers: ticks that are `PARK_MAX` old, and as many others as can get a slot now. All
    /// ticks, if none got a slot for `SLOT_WAIT_MAX`.
    pub(super) fn end_parking(&mut self, slots: usize, at: DbTime, now: MonoTime) {
        let Some(parked) = &mut self.parked else { return };
        let destination = parked.destination;
        while let Some(old) = parked.ticks.first().copied().filter(|(tick, _)| at.since(*tick) >= PARK_MAX) {
            parked.ticks.remove(&old);
            self.timers.insert(old);
        }
        let batch = worth_a_batch(slots).min(parked.ticks.len().max(1));
        if self.in_use.reserved_for(destination) >= batch {
            // A batch is being recorded. Wait for its answer: runs that do not start, or that end at once, free their
            // slots.
            parked.since = now;
        }
        let has_waited = now.since(parked.since) >= SLOT_WAIT_MAX;
        let is_empty = parked.ticks.is_empty();
        let is_over = is_empty && self.destination_free(destination, slots) > 0;
        if is_over || self.queued_destination == Some(destination) {
            self.unpark(usize::MAX);
        } else if self.destination_has_slots(slots) {
            let free = self.destination_free(destination, slots).min(self.slots_free(slots));
            if let Some(parked) = &mut self.parked {
                parked.since = now;
            }
            self.unpark(free);
        } else if has_waited && let Some(parked) = &mut self.parked {
            // `parked` stays with its old start time, so that these ticks are not parked again.
            self.timers.append(&mut parked.ticks);
        }
    }

    /// Whether ticks are parked and their destination has enough slots for a batch.
    pub(super) fn destination_has_slots(&self, slots: usize) -> bool {
        self.parked.as_ref().is_some_and(|parked| {
            let free = self.destination_free(parked.destination, slots).min(self.slots_free(slots));
            !parked.ticks.is_empty() && free >= worth_a_batch(slots).min(parked.ticks.len())
        })
    }

    /// How long parked ticks still wait, unless slots become free before. `None` if no tick is parked.
    pub(crate) fn parked_for(&self, slots: usize, now: MonoTime) -> Option<Duration> {
        let parked = self.parked.as_ref().filter(|parked| !parked.ticks.is_empty())?;
        let rest = SLOT_WAIT_MAX.saturating_sub(now.since(parked.since));
        Some(if self.destination_has_slots(slots) { Duration::ZERO } else { rest })
    }

    fn unpark(&mut self, count: usize) {
        let Some(parked) = &mut self.parked else { return };
        self.timers.extend(std::iter::from_fn(|| parked.ticks.pop_first()).take(count));
        if parked.ticks.is_empty() {
            self.parked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::ids::RunId;
    use everytick_store::{RecordRow, Recorded, RowAnswer, Waiting, conformance::s};

    use super::*;
    use crate::memory::slots::tests::memory_with;

    const SLOTS: usize = 2_000;
    /// How many of these slots one destination may use.
    const DESTINATION_MAX: usize = 1_500;
    const JOBS: usize = 4_000;

    /// Many jobs of one destination, and two of another.
    fn memory() -> Memory {
        let names: Vec<String> = (0..JOBS).map(|n| format!("j{n}")).collect();
        let mut jobs: Vec<_> = names.iter().map(|name| (name.as_str(), "https://full.example/")).collect();
        jobs.extend([("k0", "https://other.example/"), ("k1", "https://other.example/")]);
        memory_with(&jobs)
    }

    /// Records the due ticks; the store accepts all of them. Returns how many runs have begun and how many wait.
    fn pass(memory: &mut Memory, now: DbTime) -> (usize, usize) {
        let Some(budget) = memory.tick_budget(SLOTS, now, MonoTime::now()) else { return (0, 0) };
        let due = memory.due(now, SLOTS, budget);
        let jobs = due.batch.iter().map(|ticks| vec![RowAnswer::Inserted; ticks.rows.len()]).collect();
        memory.recorded(&due.batch, &Recorded { now, jobs });
        let rows: Vec<&RecordRow> = due.batch.iter().flat_map(|ticks| &ticks.rows).collect();
        let begun = rows.iter().filter(|row| row.born_claimed).count();
        (begun, rows.len() - begun)
    }

    /// Makes passes until nothing more is planned.
    fn passes(memory: &mut Memory, now: DbTime) -> (usize, usize) {
        std::iter::repeat_with(|| pass(memory, now)).take(20).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Ends the work on `count` runs.
    fn end(memory: &mut Memory, count: usize) {
        let ended: Vec<(JobId, RunId)> =
            memory.claims().values().filter(|own| !own.ended).map(|own| (own.job.id, own.claim.run)).collect();
        for (job, run) in ended.into_iter().take(count) {
            let fence = memory.claims()[&run].claim.fence;
            memory.outcome_arrived(job, run, fence);
        }
    }

    fn parked(memory: &Memory) -> usize {
        memory.parked.as_ref().map_or(0, |parked| parked.ticks.len())
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_of_a_full_destination_wait_for_its_slots_and_others_do_not() {
        let mut memory = memory();
        assert_eq!(
            passes(&mut memory, s(10)),
            (DESTINATION_MAX + 2, 0),
            "both jobs of the other destination have begun"
        );
        end(&mut memory, SLOTS);
        assert!(memory.has_slots_again(SLOTS));
        assert_eq!(memory.parked_for(SLOTS, MonoTime::now()), Some(Duration::ZERO));
        assert_eq!(passes(&mut memory, s(10)), (DESTINATION_MAX, 0));
        assert_eq!(parked(&memory), JOBS - 2 * DESTINATION_MAX);
        assert!(!memory.has_slots_again(SLOTS));
        assert_eq!(memory.parked_for(SLOTS, MonoTime::now()), Some(SLOT_WAIT_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_that_have_waited_for_a_slot_are_recorded_as_waiting() {
        let mut memory = memory();
        passes(&mut memory, s(10));
        tokio::time::advance(SLOT_WAIT_MAX).await;
        assert_eq!(memory.parked_for(SLOTS, MonoTime::now()), Some(Duration::ZERO));
        assert_eq!(passes(&mut memory, s(10)), (0, JOBS - DESTINATION_MAX));
        assert_eq!(parked(&memory), 0);
        assert_eq!(memory.parked_for(SLOTS, MonoTime::now()), None, "the loop is not woken for them again");
        // The search finds the waiting runs. New ticks queue behind them until the runs that get the free slots are chosen.
        memory.jobs_at_slot_limit(SLOTS);
        end(&mut memory, DESTINATION_MAX);
        memory.jobs_at_slot_limit(SLOTS);
        assert!(memory.queued_destination.is_some());
        memory.choose(&Waiting { now: s(10), due: Vec::new(), next_due: None }, SLOTS, 0);
        assert_eq!(memory.queued_destination, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tick_queues_behind_the_waiting_runs_of_its_destination() {
        let mut memory = memory();
        passes(&mut memory, s(10));
        tokio::time::advance(SLOT_WAIT_MAX).await;
        passes(&mut memory, s(10));
        memory.jobs_at_slot_limit(SLOTS);
        assert!(memory.queued_destination.is_some());
        let (begun, waiting) = passes(&mut memory, s(20));
        assert_eq!((parked(&memory), begun), (0, 2), "the other destination has slots");
        assert!(waiting >= JOBS, "every tick is recorded at once");
    }

    #[tokio::test(start_paused = true)]
    async fn no_tick_is_parked_until_it_is_late() {
        let mut memory = memory();
        passes(&mut memory, s(10));
        let old = s(10).plus(PARK_MAX);
        assert_eq!(
            passes(&mut memory, old),
            (0, JOBS - DESTINATION_MAX),
            "the ticks are old, although they were parked only now"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_tick_takes_no_slot_that_parked_ticks_wait_for() {
        let mut memory = memory();
        passes(&mut memory, s(10));
        let user =
            memory.jobs.values().find(|entry| entry.user.goes_to(Some(memory.parked.as_ref().unwrap().destination)));
        let user = user.unwrap().user;
        end(&mut memory, 100);
        assert_eq!(memory.full_destination(user, SLOTS), None);
        assert!(memory.destination_to_wait_for(user, s(11), SLOTS).is_some());
        assert_eq!(memory.destination_to_wait_for(user, s(9), SLOTS), None, "an older tick may get the slot");
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_tick_is_removed_with_its_job() {
        let mut memory = memory();
        passes(&mut memory, s(10));
        let before = parked(&memory);
        let (_, job) = memory.parked.as_ref().and_then(|parked| parked.ticks.first().copied()).unwrap();
        memory.mark_stale(job);
        assert_eq!(parked(&memory), before - 1);
    }
}
