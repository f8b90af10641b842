//! Records ticks when they are due: plans from memory, commits one statement, and only then sends the runs that it claimed.

use std::sync::Arc;

use everytick_domain::{edit::Change, mutant::Mutant, plan::Fate};
use everytick_store::{
    Actor, EditJob, JobRef, JobTicks, Lease, RangeAnswer, RangePlan, Recorded, RowAnswer, StoreError,
};
use metrics::counter;

use crate::{
    clock::MonoTime,
    cluster::unsure,
    dispatch::deliver,
    mutants, pulse,
    settings::{FAILURE_PAUSE, TICKS_PER_BATCH_MAX},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let woken = shared.wake_tick.notified();
        let pause = {
            let (memory, slots, now) = (shared.memory(), shared.parts.settings.slots, MonoTime::now());
            let next = memory.next_timer().map(|at| shared.clock.until(at).max(memory.slot_wait_left(slots, now)));
            next.into_iter().chain(memory.parked_for(slots, now)).min()
        };
        let timer = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = timer => {}
            () = woken => continue,
        }
        if !pass(&shared).await {
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
    }
}

/// Records one batch. Returns `false` if the store failed, so that the caller pauses.
pub(crate) async fn pass(shared: &Arc<Shared>) -> bool {
    let _pass = pulse::pass();
    let statement = pulse::untimed(shared.statements.read()).await;
    let slots = shared.parts.settings.slots;
    let now = shared.clock.now();
    let due = {
        let mut memory = shared.memory();
        let Some(budget) = memory.tick_budget(slots, now, MonoTime::now()) else { return true };
        let due = memory.due(now, slots, TICKS_PER_BATCH_MAX.min(budget));
        if memory.parked_for(slots, MonoTime::now()).is_some() {
            // Wake the other recorder, so that its timer includes the end of parking: this recorder may be waiting for
            // the database at that time.
            shared.wake_tick.notify_one();
        }
        due
    };
    if due.is_empty() {
        shared.wake_load.notify_one();
        return true;
    }
    let lease = shared.lease();
    let mut failure = Failure::default();
    if !due.batch.is_empty() {
        record_batch(shared, &lease, &due.batch, &mut failure).await;
    }
    // Ranges come after the ticks: ticks may be on time, ranges are long past.
    for plan in &due.ranges {
        record_range(shared, &lease, plan, &mut failure).await;
    }
    drop(statement);
    if shared.memory().take_deferred() {
        shared.wake_claim.notify_one();
    }
    if failure.any_unsure && !Mutant::MemoryKeptAfterUnsure.is_on() {
        unsure::resolve(shared).await;
    }
    shared.wake_load.notify_one();
    !failure.any
}

/// Whether calls of one pass failed, and whether the outcome of any of them is unknown.
#[derive(Default)]
struct Failure {
    any: bool,
    any_unsure: bool,
}

impl Failure {
    fn note(&mut self, unsure: bool) {
        self.any = true;
        self.any_unsure |= unsure;
    }
}

async fn record_batch(shared: &Arc<Shared>, lease: &Lease, batch: &[JobTicks], failure: &mut Failure) {
    mutants::send_early(shared, batch);
    let sent = MonoTime::now();
    match shared.call("record ticks", shared.parts.store.record(lease, batch)).await {
        Ok(answer) => {
            shared.clock.observe(sent, answer.now);
            apply(shared, batch, &answer);
        }
        Err(StoreError::Refused { doing, source }) => {
            tracing::error!(doing, %source, jobs = batch.len(), "the database refused the data of a batch");
            failure.note(record_in_halves(shared, batch).await);
        }
        Err(error) => {
            failure.note(unsure::is(&error));
            shared.memory().unrecorded(batch, unsure::is(&error));
            unsure::report(shared, &error);
        }
    }
}

async fn record_range(shared: &Arc<Shared>, lease: &Lease, plan: &RangePlan, failure: &mut Failure) {
    match shared.call("record a range", shared.parts.store.record_range(lease, plan)).await {
        Ok(answer) => {
            shared.memory().range_recorded(plan, answer);
            if matches!(answer, RangeAnswer::Recorded { .. }) {
                let reason = plan.range.reason.word();
                counter!("everytick_ticks_skipped_total", "reason" => reason).increment(plan.range.count);
            }
        }
        Err(error) => {
            failure.note(unsure::is(&error));
            shared.memory().range_unrecorded(plan, unsure::is(&error));
            unsure::report(shared, &error);
        }
    }
}

fn apply(shared: &Arc<Shared>, batch: &[JobTicks], answer: &Recorded) {
    let send = shared.memory().recorded(batch, answer);
    let (mut waits, mut runs) = (false, 0);
    let rows = batch.iter().zip(&answer.jobs).flat_map(|(ticks, answers)| ticks.rows.iter().zip(answers));
    for (row, _) in rows.filter(|(_, answer)| **answer == RowAnswer::Inserted) {
        match row.tick.fate {
            Fate::Skip(reason) => counter!("everytick_ticks_skipped_total", "reason" => reason.word()).increment(1),
            Fate::Run | Fate::Late => {
                runs += 1;
                waits |= !row.born_claimed;
            }
        }
    }
    shared.meters.recorded.increment(runs);
    for claimed in send {
        if !Mutant::DispatchBeforeCommit.is_on() {
            deliver::start(shared, claimed);
        }
    }
    if waits {
        shared.wake_claim.notify_one();
        shared.parts.hints.queue_waits();
    }
}

/// Halves a refused batch until it finds the job whose ticks the database refuses. Pauses that job and records the rest.
/// Returns whether an answer was unsure.
async fn record_in_halves(shared: &Arc<Shared>, batch: &[JobTicks]) -> bool {
    let mut any_unsure = false;
    let mut halves: Vec<&[JobTicks]> = vec![batch];
    while let Some(part) = halves.pop() {
        let lease = shared.lease();
        match shared.call("record ticks", shared.parts.store.record(&lease, part)).await {
            Ok(answer) => apply(shared, part, &answer),
            Err(StoreError::Refused { source, .. }) => match part {
                [one] => {
                    shared.memory().unrecorded(part, false);
                    shared.memory().mark_wrong(one.job);
                    pause_refused_job(shared, &lease, one, &source).await;
                }
                _ => {
                    let (left, right) = part.split_at(part.len() / 2);
                    halves.push(right);
                    halves.push(left);
                }
            },
            Err(error) => {
                any_unsure |= unsure::is(&error);
                shared.memory().unrecorded(part, unsure::is(&error));
                unsure::report(shared, &error);
            }
        }
    }
    any_unsure
}

async fn pause_refused_job(shared: &Arc<Shared>, lease: &Lease, ticks: &JobTicks, source: &impl std::fmt::Display) {
    let note = format!("paused: the database refuses its ticks ({source})");
    let change = Change::Quarantine { note };
    let edit = EditJob { job: JobRef::Id(ticks.job), change, if_match: None, cancel: false };
    let actor = Actor::node(&lease.node);
    let call = shared.parts.store.edit_job(ticks.tenant, &actor, edit);
    if let Err(error) = shared.call("pause a job whose ticks are refused", call).await {
        tracing::error!(%error, job = %ticks.job, "could not pause a job whose ticks the database refuses");
    }
}
