//! Plans due jobs from the timers into batches to record.

use std::{sync::Arc, time::Duration};

use everytick_domain::{
    ids::{Epoch, JobId},
    job::Job,
    mutant::Mutant,
    overlap::{Admission, admit},
    plan::{Fate, Plan, SkipRange, TickRow, decide},
    run::SkipReason,
    time::DbTime,
};
use everytick_store::{JobTicks, RangePlan, RecordRow};

use super::{
    Memory, SlotUser,
    entry::{Entry, Lag},
};
use crate::{
    clock::MonoTime,
    settings::{PARK_MAX, RANGES_PER_PASS_MAX, RECORDERS, SLOT_WAIT_MAX, SLOTS_WORTH_A_BATCH, TICKS_PER_BATCH_MAX},
};

/// The ticks and ranges that are due now.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub batch: Vec<JobTicks>,
    pub ranges: Vec<RangePlan>,
}

impl Due {
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.ranges.is_empty()
    }
}

/// The state of one call of [`Memory::due`].
struct Pass {
    now: DbTime,
    slots: usize,
    /// Record at most one tick of each job.
    one_tick_per_job: bool,
    due: Due,
    ticks: usize,
    parked: usize,
    /// Jobs with a range that did not fit.
    postponed: Vec<JobId>,
}

/// A job whose tick `at` is due.
struct DueJob {
    at: DbTime,
    /// Whether its run may start at once on this node, if it gets a slot.
    starts: bool,
    job: Arc<Job>,
    user: SlotUser,
    epoch: Epoch,
}

/// How many slots must be free before a batch of ticks is recorded for them.
pub(super) fn worth_a_batch(slots: usize) -> usize {
    SLOTS_WORTH_A_BATCH.min(slots / 4).max(1)
}

impl Memory {
    /// How many ticks to plan now. `None`: wait, because slots may become free in a moment.
    ///
    /// Normally at most as many ticks as slots are free. A run that is recorded as waiting costs twice as much as a run
    /// that is recorded a moment later as claimed, and it ends later. The number of free slots does not matter if none
    /// became free for `SLOT_WAIT_MAX`, or if runs wait already and new ones queue behind them.
    pub(crate) fn tick_budget(&mut self, slots: usize, now: DbTime, clock: MonoTime) -> Option<usize> {
        self.end_parking(slots, now, clock);
        let free = self.slots_free(slots);
        let next = self.timers.iter().take_while(|(at, _)| *at <= now).take(TICKS_PER_BATCH_MAX);
        // A tick of a full destination gets no slot, however many are free. It must not delay the ticks of other
        // destinations.
        let needs_slot = |entry: &Entry| {
            !entry.is_pulled()
                && !entry.user.goes_to(self.queued_destination)
                && self.full_destination(entry.user, slots).is_none()
        };
        let needs = |id: &JobId| usize::from(self.jobs.get(id).is_none_or(needs_slot));
        let (due, need_slots) = next.fold((0, 0), |(due, need), (_, id)| (due + 1, need + needs(id)));
        if need_slots == 0 {
            self.slots_awaited_since = None;
        }
        if due == 0 {
            return Some(0);
        }
        if need_slots == 0 {
            // These runs take no slot of this node: workers claim them, or their destination is full.
            return Some(usize::MAX);
        }
        if self.backlog || need_slots <= free || free >= worth_a_batch(slots) {
            self.slots_awaited_since = None;
            // Leave slots to the other recorders.
            return Some(if self.backlog {
                usize::MAX
            } else {
                free.min((slots / RECORDERS).max(SLOTS_WORTH_A_BATCH))
            });
        }
        if self.reserved > 0 {
            // Some slots are reserved for runs that are being recorded or claimed. Wait for the answers: runs that do
            // not start, or that end at once, free their slots.
            self.slots_awaited_since = Some(clock);
            return None;
        }
        let since = *self.slots_awaited_since.get_or_insert(clock);
        (clock.since(since) >= SLOT_WAIT_MAX).then_some(usize::MAX)
    }

    /// How long ticks still wait for slots, unless slots become free before.
    pub(crate) fn slot_wait_left(&self, slots: usize, now: MonoTime) -> Duration {
        let since = self.slots_awaited_since.filter(|_| self.slots_free(slots) < worth_a_batch(slots));
        since.map_or(Duration::ZERO, |since| SLOT_WAIT_MAX.saturating_sub(now.since(since)))
    }

    /// Whether ticks wait for slots, and enough are free now.
    pub(crate) fn has_slots_again(&self, slots: usize) -> bool {
        self.destination_has_slots(slots)
            || self.slots_awaited_since.is_some() && self.slots_free(slots) >= worth_a_batch(slots)
    }

    /// Plans every job whose next tick is due, up to `ticks_max` ticks. Marks the planned jobs as being recorded.
    pub(crate) fn due(&mut self, now: DbTime, slots: usize, ticks_max: usize) -> Due {
        // If more jobs are due than fit, the oldest tick of each job is recorded before the next tick of any job.
        let one_tick_per_job = self.timers.iter().take_while(|(at, _)| *at <= now).nth(ticks_max).is_some();
        let (due, postponed) = (Due::default(), Vec::new());
        let mut pass = Pass { now, slots, one_tick_per_job, due, ticks: 0, parked: 0, postponed };
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            if pass.ticks >= ticks_max || pass.parked >= TICKS_PER_BATCH_MAX {
                break;
            }
            self.unset_timer(id);
            self.plan(&mut pass, at, id);
        }
        for id in pass.postponed {
            self.set_timer(id);
        }
        pass.due
    }

    /// Plans one job, whose tick `at` is due.
    fn plan(&mut self, pass: &mut Pass, at: DbTime, id: JobId) {
        let slot_free = self.slots_free(pass.slots) > 0 && !self.backlog;
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if !entry.is_decided() {
            return self.mark_stale(id);
        }
        let open = entry.open_runs();
        match decide(&entry.job, entry.next, pass.now, open) {
            // Nothing is due. The schedule and the timer differ only if the job was just changed.
            Plan::Idle => self.mark_stale(id),
            // Each range is its own transaction, and a renewal waits for all of them.
            Plan::Range(_) if pass.due.ranges.len() >= RANGES_PER_PASS_MAX => pass.postponed.push(id),
            Plan::Range(range) => {
                if let Some(range) = plan_range(entry, range) {
                    pass.ticks += 1;
                    pass.due.ranges.push(range);
                }
            }
            Plan::Rows(mut rows) => {
                if pass.one_tick_per_job {
                    rows.truncate(1);
                }
                let admission = admit(&entry.job.spec, open);
                if must_verify(entry, admission, &rows) && !entry.is_verified_for(at) {
                    return self.verify(id, at);
                }
                // A run needs no slot of this node if a worker claims it, or if another node delivers it now or after its
                // restart. Under some overlap policies a run has to wait although it is not skipped.
                let starts = slot_free
                    && admission == Admission::Start
                    && !entry.is_pulled()
                    && !entry.user.goes_to(self.queued_destination)
                    && !self.routes.delegates(entry.needs)
                    && !self.routes.awaits_restart(entry.needs);
                let job = DueJob { at, starts, job: entry.job.clone(), user: entry.user, epoch: entry.epoch };
                if starts && self.park_if_full(pass, &job, &rows) {
                    pass.parked += 1;
                } else {
                    self.plan_rows(pass, job, rows);
                }
            }
        }
    }

    /// Parks the tick if its destination is at its slot limit. Returns whether it is parked.
    fn park_if_full(&mut self, pass: &Pass, due: &DueJob, rows: &[TickRow]) -> bool {
        rows.iter().any(starts_at_its_tick)
            && pass.now.since(due.at) < PARK_MAX
            && due.job.spec.misfire.late_after > PARK_MAX
            && self
                .destination_to_wait_for(due.user, due.at, pass.slots)
                .is_some_and(|destination| self.park(due.at, due.job.id, destination))
    }

    /// Adds the ticks of one job to the batch. Reserves a slot for each run that may start at once.
    fn plan_rows(&mut self, pass: &mut Pass, due: DueJob, rows: Vec<TickRow>) {
        let DueJob { starts, job, user, epoch, .. } = due;
        let Some(entry) = self.jobs.get_mut(&job.id) else { return };
        pass.ticks += rows.len();
        entry.begin_recording();
        if Mutant::CursorRaisedBeforeAck.is_on() {
            let last = rows.last().map(|row| row.at);
            entry.next = last.and_then(|last| job.ticking().and_then(|schedule| schedule.next_after(last)));
            entry.lag = Some(Lag { ticks: u32::MAX, ..entry.lag.unwrap_or_else(Lag::begin) });
            self.lagging.insert(job.id);
        }
        let mut remaining = entry.remaining;
        let rows = rows
            .into_iter()
            .map(|mut tick| {
                let born_claimed = starts && starts_at_its_tick(&tick) && self.may_have_slot(user, pass.slots);
                if born_claimed {
                    self.reserve_slot(user);
                } else if !matches!(tick.fate, Fate::Skip(_)) {
                    tick.fate = if remaining == 0 { Fate::Skip(SkipReason::Quota) } else { tick.fate };
                    remaining = remaining.saturating_sub(1);
                }
                RecordRow { tick, born_claimed }
            })
            .collect();
        pass.due.batch.push(JobTicks {
            job: job.id,
            tenant: job.tenant,
            partition: job.partition,
            epoch,
            priority: job.spec.priority,
            key: job.spec.key_of(None),
            rows,
        });
    }
}

/// Whether the job must be reloaded before these ticks are recorded. The runs that block a tick, or that fill the quota
/// of waiting runs, may have ended on another node. If the tick is skipped only for a newer tick, a reload changes
/// nothing.
fn must_verify(entry: &Entry, admission: Admission, rows: &[TickRow]) -> bool {
    let overlap = |row: &TickRow| row.fate == Fate::Skip(SkipReason::Overlap);
    admission == Admission::Skip && rows.iter().any(overlap) || rows.len() > entry.remaining
}

/// Whether the run is due at its tick. With jitter it is due later, and only a claim checks the due time.
fn starts_at_its_tick(tick: &TickRow) -> bool {
    tick.fate == Fate::Run && tick.due_at == tick.at
}

/// Plans a range of skips. `None` if the job has no schedule or no cursor.
fn plan_range(entry: &mut Entry, range: SkipRange) -> Option<RangePlan> {
    let cursor = entry.job.ticking()?.next_after(range.to);
    let cursor_was = entry.cursor?;
    entry.begin_recording();
    let job = &entry.job;
    Some(RangePlan { job: job.id, tenant: job.tenant, epoch: entry.epoch, cursor_was, range, cursor })
}

#[cfg(test)]
mod tests {
    use everytick_domain::{
        ids::{Cause, RunId},
        job::{Creation, create},
        overlap::Open,
        partition::PartitionSet,
        schedule::CronCache,
    };
    use everytick_store::{
        LoadedJob, Recorded, RowAnswer, Unread,
        conformance::{START, TENANT, job_id, overlapping, s},
    };

    use super::*;

    /// A memory with `count` jobs, all due at 10 s.
    fn due_jobs(count: usize) -> Memory {
        let mut memory = Memory::default();
        memory.add_partitions(&PartitionSet::all(1));
        let job = |n: usize| {
            let name = format!("j{n}");
            let creation =
                Creation { id: job_id(TENANT, &name), tenant: TENANT, partition: 0, by: "test".into(), at: START };
            let (job, cursor) = create(creation, overlapping(&name), &[], &CronCache::default()).unwrap();
            let (unread, open) = (Unread::default(), Vec::new());
            LoadedJob {
                job: Arc::new(job),
                epoch: Epoch::from_raw(1),
                cursor,
                last_tick: None,
                open,
                unread,
                remaining: 100,
            }
        };
        let partition_generation = memory.partition_generation();
        memory.add_horizon((0..count).map(job).collect(), partition_generation);
        memory
    }

    /// Begins the work on a run of the job.
    fn begin(memory: &mut Memory, name: &str) -> (JobId, RunId) {
        let (job, at) = (job_id(TENANT, name), s(5));
        let id = RunId::of(job, Cause::Tick(at));
        let tick = TickRow { id, at, due_at: at, fate: Fate::Run };
        memory.claim_tick(job, &tick, at).unwrap();
        (job, id)
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_wait_for_slots_for_a_limited_time() {
        let (mut memory, now, slots) = (due_jobs(20), s(3_600), 10);
        assert_eq!(memory.tick_budget(slots, s(0), MonoTime::now()), Some(0), "nothing is due");
        assert!(memory.tick_budget(slots, now, MonoTime::now()).is_some_and(|budget| budget == slots));
        memory.reserved = slots;
        for _ in 0..3 {
            assert_eq!(
                memory.tick_budget(slots, now, MonoTime::now()),
                None,
                "an answer is pending, however long it takes"
            );
            tokio::time::advance(SLOT_WAIT_MAX).await;
        }
        // Long work uses all slots.
        (memory.reserved, memory.slots_awaited_since) = (0, None);
        let runs: Vec<_> = (0..slots).map(|n| begin(&mut memory, &format!("j{n}"))).collect();
        assert_eq!(memory.tick_budget(slots, now, MonoTime::now()), None);
        tokio::time::advance(SLOT_WAIT_MAX).await;
        assert_eq!(memory.slot_wait_left(slots, MonoTime::now()), Duration::ZERO);
        assert_eq!(
            memory.tick_budget(slots, now, MonoTime::now()),
            Some(usize::MAX),
            "then the runs are recorded as waiting"
        );
        // A run that has ended uses no slot, although it is not settled.
        for (job, run) in &runs {
            let fence = memory.claims()[run].claim.fence;
            memory.outcome_arrived(*job, *run, fence);
        }
        memory.slots_awaited_since = Some(MonoTime::now());
        assert!(memory.has_slots_again(slots));
        assert_eq!(
            memory.slot_wait_left(slots, MonoTime::now()),
            Duration::ZERO,
            "ticks stop waiting when slots are free"
        );
        assert_eq!(memory.tick_budget(slots, now, MonoTime::now()), Some(slots));
        memory.backlog = true;
        assert_eq!(
            memory.tick_budget(slots, now, MonoTime::now()),
            Some(usize::MAX),
            "the runs queue behind those that wait"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_cursors_that_lag_longest_are_raised_if_not_all_fit() {
        let mut memory = due_jobs(3);
        let mut ids: Vec<JobId> = memory.jobs.keys().copied().collect();
        ids.sort_unstable();
        for id in ids.iter().rev() {
            memory.jobs.get_mut(id).unwrap().lag = Some(Lag::begin());
            memory.lagging.insert(*id);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        tokio::time::advance(crate::settings::RAISE_EVERY).await;
        let raised =
            |limit| -> Vec<JobId> { memory.raises(MonoTime::now(), limit).iter().map(|raise| raise.job).collect() };
        assert_eq!(raised(2), [ids[2], ids[1]]);
        assert_eq!(raised(3).len(), 3);
    }

    #[test]
    fn the_wait_for_slots_ends_when_nothing_is_due() {
        let mut memory = due_jobs(1);
        memory.slots_awaited_since = Some(MonoTime::now());
        assert_eq!(memory.tick_budget(1, s(5), MonoTime::now()), Some(0));
        assert_eq!(memory.slots_awaited_since, None, "the next wait has its full time");
    }

    /// Records the due ticks while no slot is free; the store accepts all of them. Returns the fates.
    fn record(memory: &mut Memory, now: DbTime) -> Vec<Fate> {
        let due = memory.due(now, 0, usize::MAX);
        let jobs = due.batch.iter().map(|ticks| vec![RowAnswer::Inserted; ticks.rows.len()]).collect();
        memory.recorded(&due.batch, &Recorded { now, jobs });
        due.batch.iter().flat_map(|ticks| ticks.rows.iter().map(|row| row.tick.fate)).collect()
    }

    /// Loads the wanted jobs. `read` returns each loaded job.
    fn read(memory: &mut Memory, read: impl Fn() -> LoadedJob) -> usize {
        let wanted = memory.take_wanted(usize::MAX, MonoTime::now());
        let partition_generation = memory.partition_generation();
        memory.loaded(&wanted, wanted.iter().map(|_| read()).collect(), partition_generation);
        wanted.len()
    }

    #[test]
    fn a_tick_beyond_the_quota_of_waiting_runs_is_skipped_after_the_job_was_reloaded() {
        let mut memory = due_jobs(1);
        let id = job_id(TENANT, "j0");
        let entry = memory.jobs.get_mut(&id).unwrap();
        entry.remaining = 1;
        let (job, epoch, cursor) = (entry.job.clone(), entry.epoch, entry.cursor);
        let loaded = |remaining| LoadedJob {
            job: job.clone(),
            epoch,
            cursor,
            last_tick: None,
            open: Vec::new(),
            unread: Unread { waiting: true, tried: false },
            remaining,
        };
        assert_eq!(record(&mut memory, s(10)), [Fate::Run]);
        assert_eq!(record(&mut memory, s(20)), [], "the job is reloaded first");
        assert_eq!(read(&mut memory, || loaded(1)), 1);
        assert_eq!(record(&mut memory, s(20)), [Fate::Run], "a run has left the queue meanwhile");
        assert_eq!(record(&mut memory, s(30)), []);
        read(&mut memory, || loaded(0));
        assert_eq!(record(&mut memory, s(30)), [Fate::Skip(SkipReason::Quota)]);
    }

    #[test]
    fn a_job_is_reloaded_if_too_few_of_its_waiting_runs_were_read_to_decide() {
        let mut memory = due_jobs(1);
        let entry = memory.jobs.get_mut(&job_id(TENANT, "j0")).unwrap();
        let mut spec = (*entry.job.spec).clone();
        spec.overlap = everytick_domain::job::Overlap::Queue { limit: 2 };
        Arc::make_mut(&mut entry.job).spec = Arc::new(spec);
        let run = |seconds| RunId::of(job_id(TENANT, "j0"), Cause::Tick(s(seconds)));
        let waits = Open { claimed: false, attempts: 0 };
        entry.unread = Unread { waiting: true, tried: false };
        entry.open = [(run(1), waits)].into();
        assert!(
            memory.due(s(10), 10, 10).is_empty() && memory.has_wanted(),
            "not all were read: the queue may be full"
        );
        let mut memory = due_jobs(1);
        memory.jobs.get_mut(&job_id(TENANT, "j0")).unwrap().unread = Unread { waiting: true, tried: false };
        assert!(!memory.due(s(10), 10, 10).is_empty(), "under `allow` any number may wait");
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_cannot_be_loaded_are_retried_alone_and_later_while_the_others_rotate() {
        let mut memory = due_jobs(5);
        let mut ids: Vec<JobId> = memory.jobs.keys().copied().collect();
        ids.sort_unstable();
        for id in &ids {
            memory.mark_stale(*id);
        }
        let take = |memory: &mut Memory, limit| -> Vec<JobId> {
            memory.take_wanted(limit, MonoTime::now()).into_iter().map(|(id, _)| id).collect()
        };
        assert_eq!(take(&mut memory, 2), ids[..2]);
        assert_eq!(take(&mut memory, 2), ids[2..4], "jobs that were not loaded do not delay the others");
        assert_eq!(take(&mut memory, 2), [ids[4], ids[0]]);
        memory.delay_load(ids[1], MonoTime::now());
        assert_eq!(take(&mut memory, 10).len(), 4);
        for id in &ids {
            if *id != ids[1] {
                memory.wanted.remove(id);
            }
        }
        assert_eq!(take(&mut memory, 10), [], "its delay has not passed");
        tokio::time::advance(crate::settings::LOAD_RETRY_FIRST).await;
        assert_eq!(take(&mut memory, 10), [ids[1]]);
        assert_eq!(memory.delay_load(ids[1], MonoTime::now()), crate::settings::LOAD_RETRY_FIRST * 2);
    }
}
