//! Plans due jobs from the timers into batches to record, and applies the answers to memory and timers.

use std::{sync::Arc, time::Duration};

use everytick_domain::{
    ids::{Fence, JobId},
    mutant::Mutant,
    overlap::{Admission, Open, admit},
    plan::{Fate, Plan, TickRow, decide},
    run::{CauseKind, SkipReason},
    time::DbTime,
};
use everytick_store::{ClaimedRun, JobTicks, RangeAnswer, RangePlan, RecordRow, Recorded, RowAnswer};
use tokio_util::sync::CancellationToken;

use super::{Memory, OwnClaim, SlotUser, entry::Entry};
use crate::{
    clock::MonoTime,
    settings::{PARK_MAX, RANGES_PER_PASS_MAX, RECORDERS, SLOT_PATIENCE, SLOTS_WORTH_A_BATCH, TICKS_PER_BATCH_MAX},
    settle::conclude::claim_of,
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

/// A run that is claimed by this node and is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub run: ClaimedRun,
    pub own: OwnClaim,
    pub due_at: DbTime,
    /// The owner of the partition has delegated it to this node.
    pub delegated: bool,
}

pub(super) fn worth_a_batch(slots: usize) -> usize {
    SLOTS_WORTH_A_BATCH.min(slots / 4).max(1)
}

impl Memory {
    /// How many ticks to plan now: no more than there are free slots. A run that is born claimed a moment later ends sooner
    /// than one recorded as waiting now, and costs half as much. Returns `None` if slots may become free in a moment. The free
    /// slots do not matter if none became free for `SLOT_PATIENCE`, or if runs wait already and new ones queue behind them.
    pub(crate) fn tick_budget(&mut self, slots: usize, now: DbTime, clock: MonoTime) -> Option<usize> {
        self.end_parking(slots, now, clock);
        let free = self.slots_free(slots);
        let next = self.timers.iter().take_while(|(at, _)| *at <= now).take(TICKS_PER_BATCH_MAX);
        // A tick of a full destination gets no slot, however many are free. It must not delay those of others.
        let needs_slot = |entry: &Entry| {
            !entry.is_pulled()
                && !entry.user.goes_to(self.queued_destination)
                && self.full_destination(entry.user, slots).is_none()
        };
        let needs = |id: &JobId| usize::from(self.jobs.get(id).is_none_or(needs_slot));
        let (looked, due) = next.fold((0, 0), |(looked, due), (_, id)| (looked + 1, due + needs(id)));
        if due == 0 {
            self.crowded = None;
        }
        if looked == 0 {
            return Some(0);
        }
        if due == 0 {
            // Workers claim these runs, so they need no slot of this node.
            return Some(usize::MAX);
        }
        if self.backlog || due <= free || free >= worth_a_batch(slots) {
            self.crowded = None;
            // Leave slots to the other recorders.
            return Some(if self.backlog {
                usize::MAX
            } else {
                free.min((slots / RECORDERS).max(SLOTS_WORTH_A_BATCH))
            });
        }
        if self.reserved > 0 {
            // Some slots are promised. The answer will show whether their runs begin, and a run may end at once.
            self.crowded = Some(clock);
            return None;
        }
        let since = *self.crowded.get_or_insert(clock);
        (clock.since(since) >= SLOT_PATIENCE).then_some(usize::MAX)
    }

    /// How long ticks still wait for slots, unless slots become free before.
    pub(crate) fn crowded_for(&self, slots: usize, now: MonoTime) -> Duration {
        let crowded = self.crowded.filter(|_| self.slots_free(slots) < worth_a_batch(slots));
        crowded.map_or(Duration::ZERO, |since| SLOT_PATIENCE.saturating_sub(now.since(since)))
    }

    /// Whether ticks wait for slots, and enough are free now.
    pub(crate) fn has_slots_again(&self, slots: usize) -> bool {
        self.destination_has_slots(slots) || self.crowded.is_some() && self.slots_free(slots) >= worth_a_batch(slots)
    }

    /// Plans every job whose next tick is due, up to `ticks_max` ticks. Marks the claimed jobs as being recorded.
    pub(crate) fn due(&mut self, now: DbTime, slots: usize, ticks_max: usize) -> Due {
        let mut due = Due::default();
        let (mut ticks, mut parked) = (0, 0);
        let mut postponed = Vec::new();
        // If more jobs are due than fit, the oldest tick of each job is recorded before the next tick of any job.
        let crowd = self.timers.iter().take_while(|(at, _)| *at <= now).nth(ticks_max).is_some();
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            if ticks >= ticks_max || parked >= TICKS_PER_BATCH_MAX {
                break;
            }
            self.unset_timer(id);
            let mut free = self.slots_free(slots) > 0 && !self.backlog;
            let Some(entry) = self.jobs.get_mut(&id) else { continue };
            // A worker claims the run, or another node delivers it, now or after its restart. It needs no slot of this node.
            free &= !entry.is_pulled()
                && !entry.user.goes_to(self.queued_destination)
                && !self.routes.away(entry.needs)
                && !self.routes.awaited(entry.needs);
            if !entry.is_decided() {
                self.mark_stale(id);
                continue;
            }
            let open = entry.open_runs();
            match decide(&entry.job, entry.next, now, open) {
                // Nothing is due. The schedule and the timer differ only if the job was just changed.
                Plan::Idle => self.mark_stale(id),
                // Each range is its own transaction, and a renewal waits for all of them.
                Plan::Range(_) if due.ranges.len() >= RANGES_PER_PASS_MAX => postponed.push(id),
                Plan::Range(range) => {
                    let Some(schedule) = entry.job.ticking() else { continue };
                    let Some(cursor_was) = entry.cursor else { continue };
                    entry.recording = true;
                    entry.under_way += 1;
                    ticks += 1;
                    due.ranges.push(RangePlan {
                        job: id,
                        tenant: entry.job.tenant,
                        epoch: entry.epoch,
                        cursor_was,
                        range,
                        cursor: schedule.next_after(range.to),
                    });
                }
                Plan::Rows(mut rows) => {
                    if crowd {
                        rows.truncate(1);
                    }
                    let overlap = |row: &TickRow| row.fate == Fate::Skip(SkipReason::Overlap);
                    // If no open run blocks the tick, a newer tick does, and a reload would not change that.
                    let admission = admit(&entry.job.spec, open);
                    let in_the_way = admission == Admission::Skip;
                    let crowded = rows.len() > entry.remaining;
                    if (in_the_way && rows.iter().any(overlap) || crowded) && entry.verified != Some(at) {
                        // The blocking runs may have ended elsewhere, so reload the job before a skip is written.
                        entry.verify = Some(at);
                        self.mark_stale(id);
                        continue;
                    }
                    let (job, user, epoch) = (entry.job.clone(), entry.user, entry.epoch);
                    // Under some policies a run has to wait although it is not skipped.
                    let free = free && admission == Admission::Start;
                    // With jitter a run is due later than its tick, and only a claim checks the due time.
                    let now_or_never = |tick: &TickRow| tick.fate == Fate::Run && tick.due_at == tick.at;
                    if free
                        && rows.iter().any(now_or_never)
                        && now.since(at) < PARK_MAX
                        && job.spec.misfire.late_after > PARK_MAX
                        && let Some(destination) = self.crowded_destination(user, at, slots)
                        && self.park(at, id, destination)
                    {
                        parked += 1;
                        continue;
                    }
                    let Some(entry) = self.jobs.get_mut(&id) else { continue };
                    ticks += rows.len();
                    entry.recording = true;
                    entry.under_way += 1;
                    if Mutant::CursorRaisedBeforeAck.is_on() {
                        let last = rows.last().map(|row| row.at);
                        entry.next = last.and_then(|last| job.ticking().and_then(|schedule| schedule.next_after(last)));
                        entry.lag = u32::MAX;
                        self.lagging.insert(id);
                    }
                    let mut remaining = entry.remaining;
                    let rows = rows
                        .into_iter()
                        .map(|mut tick| {
                            let born_claimed = now_or_never(&tick) && free && self.may_have_slot(user, slots);
                            if born_claimed {
                                self.promise_slot(user);
                            } else if !matches!(tick.fate, Fate::Skip(_)) {
                                tick.fate = if remaining == 0 { Fate::Skip(SkipReason::Quota) } else { tick.fate };
                                remaining = remaining.saturating_sub(1);
                            }
                            RecordRow { tick, born_claimed }
                        })
                        .collect();
                    due.batch.push(JobTicks {
                        job: id,
                        tenant: job.tenant,
                        partition: job.partition,
                        epoch,
                        priority: job.spec.priority,
                        key: job.spec.key_of(None),
                        rows,
                    });
                }
            }
        }
        for id in postponed {
            self.set_timer(id);
        }
        due
    }

    /// Applies the answer. Returns the runs to send. The job continues after its last recorded tick.
    pub(crate) fn recorded(&mut self, batch: &[JobTicks], answer: &Recorded) -> Vec<Claimed> {
        let mut send = Vec::new();
        for (ticks, answers) in batch.iter().zip(&answer.jobs) {
            for _ in ticks.rows.iter().filter(|row| row.born_claimed) {
                self.end_promise(ticks.job);
            }
            self.answered(ticks.job);
            let mut stale = false;
            for (row, answer_row) in ticks.rows.iter().zip(answers) {
                match answer_row {
                    RowAnswer::Inserted => {
                        if row.born_claimed {
                            send.extend(self.claim_tick(ticks.job, &row.tick, answer.now));
                        }
                        self.on_record(ticks, row, true, answer.now);
                    }
                    RowAnswer::Existed => {
                        stale = true;
                        self.on_record(ticks, row, false, answer.now);
                    }
                    RowAnswer::Early => break,
                    RowAnswer::Stale => {
                        stale = true;
                        break;
                    }
                }
            }
            if let Some(entry) = self.jobs.get_mut(&ticks.job) {
                entry.recording = false;
                stale |= entry.may_be_over();
            }
            if stale { self.mark_stale(ticks.job) } else { self.set_timer(ticks.job) }
        }
        send
    }

    fn on_record(&mut self, ticks: &JobTicks, row: &RecordRow, ours: bool, now: DbTime) {
        let Some(entry) = self.jobs.get_mut(&ticks.job) else { return };
        let waits = !row.born_claimed && !matches!(row.tick.fate, Fate::Skip(_));
        entry.remaining = entry.remaining.saturating_sub(usize::from(ours && waits));
        if ours && entry.counts_open() && !matches!(row.tick.fate, Fate::Skip(_)) {
            let open = Open { claimed: row.born_claimed, attempts: u32::from(row.born_claimed) };
            entry.open.insert(row.tick.id, open);
            if !row.born_claimed {
                self.with_waiting.insert(ticks.job);
            }
        }
        if entry.epoch != ticks.epoch {
            return;
        }
        let from = if Mutant::NextFromNow.is_on() { now } else { row.tick.at };
        entry.next = entry.job.ticking().and_then(|schedule| schedule.next_after(from));
        entry.lag = entry.lag.saturating_add(1);
        entry.lags_since.get_or_insert_with(MonoTime::now);
        self.lagging.insert(ticks.job);
    }

    /// The claim that was committed together with its tick.
    pub(crate) fn claim_tick(&mut self, job: JobId, tick: &TickRow, now: DbTime) -> Option<Claimed> {
        let Some(job) = self.jobs.get(&job).map(|entry| entry.job.clone()) else {
            self.unsent_claim(tick.id, 1);
            return None;
        };
        let run = ClaimedRun {
            id: tick.id,
            job: job.id,
            tenant: job.tenant,
            cause: CauseKind::Tick,
            scheduled_at: tick.at,
            fence: Fence::default().raised(now),
            attempt: 1,
            lost: 0,
            payload: None,
        };
        Some(self.add_claim(run, job, tick.due_at))
    }

    pub(super) fn add_claim(
        &mut self,
        run: ClaimedRun,
        job: Arc<everytick_domain::job::Job>,
        due_at: DbTime,
    ) -> Claimed {
        let claim = claim_of(&run);
        let (cancel, since) = (CancellationToken::new(), MonoTime::now());
        let user = SlotUser::of(&job);
        let own = OwnClaim { claim, tenant: run.tenant, job, user, cancel, accepted: false, ended: false, since };
        self.unsure_claims.remove(&run.id);
        self.slot_taken(user);
        // A run may be claimed again while the settlement of its last attempt is pending.
        if let Some(old) = self.claims.insert(run.id, own.clone()) {
            self.accepted -= usize::from(old.accepted);
            self.ended -= usize::from(old.ended);
            if !old.accepted && !old.ended {
                self.slot_free(old.user);
            }
        }
        self.claims_by_job.insert((own.job.id, run.id));
        Claimed { run, own, due_at, delegated: false }
    }

    /// A batch that was not recorded, or with `unsure` has an unknown outcome.
    pub(crate) fn unrecorded(&mut self, batch: &[JobTicks], unsure: bool) {
        for ticks in batch {
            for _ in ticks.rows.iter().filter(|row| row.born_claimed) {
                self.end_promise(ticks.job);
            }
            self.answered(ticks.job);
            if unsure && Mutant::MemoryKeptAfterUnsure.is_on() {
                for row in &ticks.rows {
                    self.on_record(ticks, row, true, row.tick.at);
                }
            }
            if let Some(entry) = self.jobs.get_mut(&ticks.job) {
                entry.recording = false;
            }
            if unsure && !Mutant::MemoryKeptAfterUnsure.is_on() {
                self.unsure_tick_claims(ticks);
                self.unsure(ticks.job);
            } else {
                self.set_timer(ticks.job);
            }
        }
    }

    pub(crate) fn range_recorded(&mut self, plan: &RangePlan, answer: RangeAnswer) {
        self.answered(plan.job);
        let Some(entry) = self.jobs.get_mut(&plan.job) else { return };
        entry.recording = false;
        match answer {
            RangeAnswer::Recorded { epoch } if entry.epoch == plan.epoch => {
                entry.epoch = epoch;
                entry.cursor = plan.cursor;
                entry.next = plan.cursor;
                entry.lag = 0;
                entry.lags_since = None;
                self.lagging.remove(&plan.job);
                self.set_timer(plan.job);
            }
            RangeAnswer::Recorded { .. } | RangeAnswer::Stale => self.forget(plan.job),
        }
    }

    pub(crate) fn range_unrecorded(&mut self, plan: &RangePlan, unsure: bool) {
        self.answered(plan.job);
        if let Some(entry) = self.jobs.get_mut(&plan.job) {
            entry.recording = false;
        }
        if unsure { self.unsure(plan.job) } else { self.set_timer(plan.job) }
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::{
        ids::{Cause, Epoch, RunId},
        job::{Creation, create},
        partition::PartitionSet,
        schedule::CronCache,
    };
    use everytick_store::{
        LoadedJob, Unread,
        conformance::{START, TENANT, job_id, overlapping, s},
    };

    use super::*;

    /// So many jobs, all due at 10 s.
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
                room: 100,
            }
        };
        let partition_generation = memory.partition_generation();
        memory.horizon((0..count).map(job).collect(), partition_generation);
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
            tokio::time::advance(SLOT_PATIENCE).await;
        }
        // Long work uses all slots.
        (memory.reserved, memory.crowded) = (0, None);
        let runs: Vec<_> = (0..slots).map(|n| begin(&mut memory, &format!("j{n}"))).collect();
        assert_eq!(memory.tick_budget(slots, now, MonoTime::now()), None);
        tokio::time::advance(SLOT_PATIENCE).await;
        assert_eq!(memory.crowded_for(slots, MonoTime::now()), Duration::ZERO);
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
        memory.crowded = Some(MonoTime::now());
        assert!(memory.has_slots_again(slots));
        assert_eq!(
            memory.crowded_for(slots, MonoTime::now()),
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
            memory.jobs.get_mut(id).unwrap().lags_since = Some(MonoTime::now());
            memory.lagging.insert(*id);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        tokio::time::advance(crate::settings::RAISE_EVERY).await;
        let raised = |limit| -> Vec<JobId> {
            memory.raises(MonoTime::now(), false, limit).iter().map(|raise| raise.job).collect()
        };
        assert_eq!(raised(2), [ids[2], ids[1]]);
        assert_eq!(raised(3).len(), 3);
    }

    #[test]
    fn the_wait_for_slots_ends_when_nothing_is_due() {
        let mut memory = due_jobs(1);
        memory.crowded = Some(MonoTime::now());
        assert_eq!(memory.tick_budget(1, s(5), MonoTime::now()), Some(0));
        assert_eq!(memory.crowded, None, "the next wait has its full time");
    }

    /// Records what is due without a free slot; the store accepts everything. Returns the fates.
    fn record(memory: &mut Memory, now: DbTime) -> Vec<Fate> {
        let due = memory.due(now, 0, usize::MAX);
        let jobs = due.batch.iter().map(|ticks| vec![RowAnswer::Inserted; ticks.rows.len()]).collect();
        memory.recorded(&due.batch, &Recorded { now, jobs });
        due.batch.iter().flat_map(|ticks| ticks.rows.iter().map(|row| row.tick.fate)).collect()
    }

    /// Loads the wanted jobs. `read` makes each loaded job.
    fn read(memory: &mut Memory, read: impl Fn() -> LoadedJob) -> usize {
        let asked = memory.take_wanted(usize::MAX, MonoTime::now());
        let partition_generation = memory.partition_generation();
        memory.loaded(&asked, asked.iter().map(|_| read()).collect(), partition_generation);
        asked.len()
    }

    #[test]
    fn a_tick_beyond_the_quota_of_waiting_runs_is_skipped_after_the_job_was_reloaded() {
        let mut memory = due_jobs(1);
        let id = job_id(TENANT, "j0");
        let entry = memory.jobs.get_mut(&id).unwrap();
        entry.remaining = 1;
        let (job, epoch, cursor) = (entry.job.clone(), entry.epoch, entry.cursor);
        let loaded = |room| LoadedJob {
            job: job.clone(),
            epoch,
            cursor,
            last_tick: None,
            open: Vec::new(),
            unread: Unread { waiting: true, tried: false },
            room,
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
    fn a_job_is_reloaded_if_the_waiting_runs_that_were_read_do_not_decide() {
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
        memory.set_aside(ids[1], MonoTime::now());
        assert_eq!(take(&mut memory, 10).len(), 4);
        for id in &ids {
            if *id != ids[1] {
                memory.wanted.remove(id);
            }
        }
        assert_eq!(take(&mut memory, 10), [], "its delay has not passed");
        tokio::time::advance(crate::settings::ASIDE_FIRST).await;
        assert_eq!(take(&mut memory, 10), [ids[1]]);
        assert_eq!(memory.set_aside(ids[1], MonoTime::now()), crate::settings::ASIDE_FIRST * 2);
    }
}
