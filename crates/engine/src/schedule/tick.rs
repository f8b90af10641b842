//! Records ticks when they are due: plans from memory, commits one statement, and only then sends the runs that it claimed.

use std::sync::Arc;

use everytick_domain::{edit::Change, mutant::Mutant, plan::Fate};
use everytick_store::{Actor, EditJob, JobRef, JobTicks, RangeAnswer, Recorded, RowAnswer, StoreError};
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
            let next = memory.next_timer().map(|at| shared.clock.until(at).max(memory.crowded_for(slots, now)));
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
    let statement = pulse::excused(shared.statements.read()).await;
    let slots = shared.parts.settings.slots;
    let now = shared.clock.now();
    let due = {
        let mut memory = shared.memory();
        let Some(budget) = memory.tick_budget(slots, now, MonoTime::now()) else { return true };
        let due = memory.due(now, slots, TICKS_PER_BATCH_MAX.min(budget));
        if memory.parked_for(slots, MonoTime::now()).is_some() {
            // The other recorder must know when parking ends: this one may wait for the database by then.
            shared.wake_tick.notify_one();
        }
        due
    };
    if due.is_empty() {
        shared.wake_load.notify_one();
        return true;
    }
    let mut well = true;
    let mut any_unsure = false;
    let lease = shared.lease();
    if !due.batch.is_empty() {
        mutants::send_early(shared, &due.batch);
        let sent = MonoTime::now();
        match shared.ask("record ticks", shared.parts.store.record(&lease, &due.batch)).await {
            Ok(answer) => {
                shared.clock.observe(sent, answer.now);
                apply(shared, &due.batch, &answer);
            }
            Err(StoreError::Refused { doing, source }) => {
                tracing::error!(doing, %source, jobs = due.batch.len(), "the database refused the data of a batch");
                any_unsure |= poisoned(shared, &due.batch).await;
                well = false;
            }
            Err(error) => {
                well = false;
                any_unsure |= unsure::is(&error);
                shared.memory().unrecorded(&due.batch, unsure::is(&error));
                unsure::report(shared, &error);
            }
        }
    }
    // Ranges come after the ticks: ticks may be on time, ranges are long past.
    for plan in &due.ranges {
        let asked = shared.ask("record a range", shared.parts.store.record_range(&lease, plan)).await;
        match asked {
            Ok(answer) => {
                shared.memory().range_recorded(plan, answer);
                if matches!(answer, RangeAnswer::Recorded { .. }) {
                    let reason = plan.range.reason.word();
                    counter!("everytick_ticks_skipped_total", "reason" => reason).increment(plan.range.count);
                }
            }
            Err(error) => {
                let unsure = unsure::is(&error);
                well = false;
                any_unsure |= unsure;
                shared.memory().range_unrecorded(plan, unsure);
                unsure::report(shared, &error);
            }
        }
    }
    drop(statement);
    if shared.memory().take_deferred() {
        shared.wake_claim.notify_one();
    }
    if any_unsure && !Mutant::MemoryKeptAfterUnsure.is_on() {
        unsure::resolve(shared).await;
    }
    shared.wake_load.notify_one();
    well
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
async fn poisoned(shared: &Arc<Shared>, batch: &[JobTicks]) -> bool {
    let mut any_unsure = false;
    let mut halves: Vec<&[JobTicks]> = vec![batch];
    while let Some(part) = halves.pop() {
        let lease = shared.lease();
        match shared.ask("record ticks", shared.parts.store.record(&lease, part)).await {
            Ok(answer) => apply(shared, part, &answer),
            Err(StoreError::Refused { source, .. }) => match part {
                [one] => {
                    shared.memory().unrecorded(part, false);
                    shared.memory().forget(one.job);
                    let note = format!("paused: the database refuses its ticks ({source})");
                    let edit = EditJob {
                        job: JobRef::Id(one.job),
                        change: Change::Quarantine { note },
                        if_match: None,
                        cancel: false,
                    };
                    let actor = Actor(format!("node {}", lease.node));
                    let asked = shared.parts.store.edit_job(one.tenant, &actor, edit);
                    if let Err(error) = shared.ask("pause a poisoned job", asked).await {
                        tracing::error!(%error, job = %one.job, "could not pause a job whose ticks the database refuses");
                    }
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
