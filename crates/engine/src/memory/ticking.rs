//! Applies the answers to recorded ticks: to the jobs, their timers, and the claims of this node.

use std::sync::Arc;

use everytick_domain::{
    ids::{Fence, JobId},
    job::Job,
    mutant::Mutant,
    overlap::Open,
    plan::{Fate, TickRow},
    run::CauseKind,
    time::DbTime,
};
use everytick_store::{ClaimedRun, JobTicks, RangeAnswer, RangePlan, RecordRow, Recorded, RowAnswer};
use tokio_util::sync::CancellationToken;

use super::{Memory, OwnClaim, SlotUser, entry::Lag};
use crate::{clock::MonoTime, settle::conclude::claim_of};

/// A run that is claimed by this node and is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub run: ClaimedRun,
    pub own: OwnClaim,
    pub due_at: DbTime,
    /// The owner of the partition has delegated it to this node.
    pub delegated: bool,
}

impl Memory {
    /// Applies the answer to recorded ticks. Returns the runs to send. Each job continues after its last recorded tick.
    pub(crate) fn recorded(&mut self, batch: &[JobTicks], answer: &Recorded) -> Vec<Claimed> {
        let mut send = Vec::new();
        for (ticks, answers) in batch.iter().zip(&answer.jobs) {
            for _ in ticks.rows.iter().filter(|row| row.born_claimed) {
                self.end_reservation(ticks.job);
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
                entry.end_recording();
                stale |= entry.open_runs_may_have_ended();
            }
            if stale { self.mark_stale(ticks.job) } else { self.set_timer(ticks.job) }
        }
        send
    }

    /// Notes a recorded tick. `ours`: this statement has recorded it; otherwise its row existed before.
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
        let lag = entry.lag.get_or_insert_with(Lag::begin);
        lag.ticks = lag.ticks.saturating_add(1);
        self.lagging.insert(ticks.job);
    }

    /// Adds the claim that was committed together with its tick.
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

    pub(super) fn add_claim(&mut self, run: ClaimedRun, job: Arc<Job>, due_at: DbTime) -> Claimed {
        let claim = claim_of(&run);
        let (cancel, since) = (CancellationToken::new(), MonoTime::now());
        let user = SlotUser::of(&job);
        let own = OwnClaim { claim, tenant: run.tenant, job, user, cancel, accepted: false, ended: false, since };
        self.unsure_claims.remove(&run.id);
        self.occupy_slot(user);
        // A run may be claimed again while the settlement of its last attempt is pending.
        if let Some(old) = self.claims.insert(run.id, own.clone()) {
            self.accepted -= usize::from(old.accepted);
            self.ended -= usize::from(old.ended);
            if !old.accepted && !old.ended {
                self.release_slot(old.user);
            }
        }
        self.claims_by_job.insert((own.job.id, run.id));
        Claimed { run, own, due_at, delegated: false }
    }

    /// Applies the failure of a batch: it was not recorded, or with `unsure` may have been.
    pub(crate) fn unrecorded(&mut self, batch: &[JobTicks], unsure: bool) {
        for ticks in batch {
            for _ in ticks.rows.iter().filter(|row| row.born_claimed) {
                self.end_reservation(ticks.job);
            }
            self.answered(ticks.job);
            if unsure && Mutant::MemoryKeptAfterUnsure.is_on() {
                for row in &ticks.rows {
                    self.on_record(ticks, row, true, row.tick.at);
                }
            }
            if let Some(entry) = self.jobs.get_mut(&ticks.job) {
                entry.end_recording();
            }
            if unsure && !Mutant::MemoryKeptAfterUnsure.is_on() {
                self.unsure_tick_claims(ticks);
                self.mark_unsure(ticks.job);
            } else {
                self.set_timer(ticks.job);
            }
        }
    }

    pub(crate) fn range_recorded(&mut self, plan: &RangePlan, answer: RangeAnswer) {
        self.answered(plan.job);
        let Some(entry) = self.jobs.get_mut(&plan.job) else { return };
        entry.end_recording();
        match answer {
            RangeAnswer::Recorded { epoch } if entry.epoch == plan.epoch => {
                entry.epoch = epoch;
                entry.cursor = plan.cursor;
                entry.next = plan.cursor;
                entry.lag = None;
                self.lagging.remove(&plan.job);
                self.set_timer(plan.job);
            }
            RangeAnswer::Recorded { .. } | RangeAnswer::Stale => self.mark_wrong(plan.job),
        }
    }

    pub(crate) fn range_unrecorded(&mut self, plan: &RangePlan, unsure: bool) {
        self.answered(plan.job);
        if let Some(entry) = self.jobs.get_mut(&plan.job) {
            entry.end_recording();
        }
        if unsure { self.mark_unsure(plan.job) } else { self.set_timer(plan.job) }
    }
}
