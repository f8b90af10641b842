//! Settles attempts in groups: one commit for all that ended within a few milliseconds. The settlements of lost and
//! overdue claims are sent from here too.

use std::{sync::Arc, time::Duration};

use everytick_domain::{edit::Change, run::Verdict};
use everytick_store::{Actor, EditJob, JobRef, KeptOutput, Settle, SettleAnswer, StoreError};
use metrics::{counter, gauge};
use tokio::sync::mpsc;

use super::{
    conclude::{EndedAttempt, conclude, count},
    retry::{Queue, Unsettled},
};
use crate::{
    clock::MonoTime,
    cluster::unsure,
    dispatch::deliver::Ended,
    pulse,
    settings::{
        FAILURE_PAUSE, SETTLE_BYTES_MAX, SETTLE_GROUP, SETTLES_PER_BATCH_MAX, UNSETTLED_CHECK_EVERY,
        UNSETTLED_WARN_AFTER, UNSETTLED_WARN_EVERY,
    },
    shared::Shared,
};

/// The stored error of a run if the database refuses the real one.
const ERROR_NOT_STORED: &str = "the error text could not be stored";

/// A settlement that is being stored, with the attempt it ends.
struct Pending {
    settle: Settle,
    attempt: u32,
    /// The job's name, for log messages.
    name: String,
}

impl Pending {
    fn bytes(&self) -> usize {
        let settlement = &self.settle.settlement;
        settlement.output.as_ref().map_or(0, String::len) + settlement.error.as_ref().map_or(0, String::len)
    }
}

pub(crate) async fn run(shared: Arc<Shared>, ended: mpsc::UnboundedReceiver<Ended>) {
    let (retry, to_retry) = mpsc::unbounded_channel();
    tokio::join!(settle_new(&shared, ended, retry), settle_again(&shared, to_retry));
}

/// Stores each group once. Settlements that were not stored go to `retry`. They are retried concurrently with the
/// groups that follow.
async fn settle_new(
    shared: &Arc<Shared>,
    mut ended: mpsc::UnboundedReceiver<Ended>,
    retry: mpsc::UnboundedSender<Remainder>,
) {
    loop {
        let first = tokio::select! {
            biased;
            first = ended.recv() => first,
            () = shared.stopped.cancelled() => None,
        };
        let Some(first) = first else { return };
        let _pass = pulse::pass();
        tokio::time::sleep(SETTLE_GROUP).await;
        let mut group: Vec<_> = pending(shared, first).into_iter().collect();
        let mut bytes = group.iter().map(Pending::bytes).sum::<usize>();
        while group.len() < SETTLES_PER_BATCH_MAX
            && bytes < SETTLE_BYTES_MAX
            && let Ok(next) = ended.try_recv()
        {
            let next = pending(shared, next);
            bytes += next.as_ref().map_or(0, Pending::bytes);
            group.extend(next);
        }
        let now = MonoTime::now();
        let group = group.into_iter().map(|pending| Unsettled::new(pending, now)).collect();
        let rest = pass(shared, group).await;
        if !rest.unsettled.is_empty() {
            let _ = retry.send(rest);
        }
        if shared.stopped.is_cancelled() {
            return;
        }
    }
}

/// Retries settlements that could not be stored: in halves, until the failing one is found, then that one alone with growing
/// delays. New groups do not wait for it.
async fn settle_again(shared: &Arc<Shared>, mut to_retry: mpsc::UnboundedReceiver<Remainder>) {
    let mut queue = Queue::default();
    let mut warned = None;
    loop {
        let wait = queue.wait(MonoTime::now()).map(|wait| wait.min(UNSETTLED_CHECK_EVERY));
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            rest = to_retry.recv() => match rest {
                Some(rest) => requeue(&mut queue, rest),
                None => return,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
        let group = queue.take(MonoTime::now(), Pending::bytes);
        if !group.is_empty() {
            let rest = pass(shared, group).await;
            let pause = rest.failed.is_some_and(|failed| !failed.refused);
            requeue(&mut queue, rest);
            if pause {
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
        }
        report_age(&queue, &mut warned);
    }
}

fn requeue(queue: &mut Queue<Pending>, rest: Remainder) {
    match rest.failed {
        Some(failed) => queue.failed(failed.size),
        None => queue.succeeded(),
    }
    queue.extend(rest.unsettled);
}

/// Sets the gauge of the oldest pending settlement in every pass; logs it rarely.
fn report_age(queue: &Queue<Pending>, warned: &mut Option<MonoTime>) {
    let now = MonoTime::now();
    let oldest = queue.oldest();
    let age = oldest.map_or(Duration::ZERO, |oldest| now.since(oldest.since));
    gauge!("everytick_oldest_unsettled_seconds").set(age.as_secs_f64());
    let Some(oldest) = oldest.filter(|_| age >= UNSETTLED_WARN_AFTER) else { return };
    if warned.is_none_or(|warned| now.since(warned) >= UNSETTLED_WARN_EVERY) {
        *warned = Some(now);
        let (job, run) = (&oldest.item.name, oldest.item.settle.settlement.run);
        tracing::warn!(job, %run, ?age, unsettled = queue.len(), "the outcome of a run cannot be stored; trying again");
    }
}

fn pending(shared: &Shared, ended: Ended) -> Option<Pending> {
    let Ended { own, outcome, started_at, ended_at } = ended;
    let (attempt, job) = (own.claim.attempt, &own.job);
    let ended = EndedAttempt { claim: own.claim, job, tenant: own.tenant, started_at, ended_at, log: None };
    let settle = conclude(ended, outcome, shared.clock.now(), shared.parts.entropy.as_ref())?;
    Some(Pending { settle, attempt, name: job.spec.name.clone() })
}

/// The part of a group that was not settled.
struct Remainder {
    unsettled: Vec<Unsettled<Pending>>,
    failed: Option<FailedGroup>,
}

/// The store failed to settle a group of this size.
#[derive(Clone, Copy)]
struct FailedGroup {
    size: usize,
    /// The database refused the group for its data, and would refuse it again.
    refused: bool,
}

/// Settles one group. Returns the settlements that must be sent again: after an error the whole group, otherwise the
/// runs that another session has locked. If a settlement was committed already, its repeat is refused, because its run
/// is no longer claimed under that fence.
async fn pass(shared: &Arc<Shared>, mut group: Vec<Unsettled<Pending>>) -> Remainder {
    {
        let mut memory = shared.memory();
        for pending in &group {
            memory.settling(pending.item.settle.job);
        }
    }
    let settles: Vec<_> = group.iter().map(|pending| pending.item.settle.clone()).collect();
    let answers = match shared.call("settle runs", shared.parts.store.settle(&settles)).await {
        Ok(answers) => answers,
        Err(error) => {
            for pending in &group {
                shared.memory().unsettled(pending.item.settle.job);
            }
            unsure::report(shared, &error);
            let refused = error.is_for_its_data();
            let failed = Some(FailedGroup { size: group.len(), refused });
            if let [alone] = &mut group[..] {
                failed_alone(alone, refused);
            }
            return Remainder { unsettled: group, failed };
        }
    };
    let (mut outputs, waits) = (Vec::new(), apply(shared, &group, &answers));
    let mut unsettled = Vec::new();
    for (mut pending, answer) in group.into_iter().zip(answers) {
        let settlement = &pending.item.settle.settlement;
        match answer {
            SettleAnswer::Settled => {
                if settlement.verdict == Verdict::Failed {
                    let (job, attempt) = (&pending.item.name, pending.item.attempt);
                    tracing::warn!(job, run = %settlement.run, attempt, error = settlement.error, "a run failed");
                }
                if let Some(note) = settlement.pause.clone() {
                    pause(shared, pending.item, note);
                }
            }
            SettleAnswer::Stale => {
                counter!("everytick_settles_refused_total").increment(1);
                outputs.extend(cancelled_output(&pending.item));
            }
            SettleAnswer::Locked => {
                pending.postpone(MonoTime::now());
                unsettled.push(pending);
            }
        }
    }
    // Reading waiting runs costs a transaction, so wake the claim loop only if a run waits.
    if waits {
        shared.wake_claim.notify_one();
    }
    shared.wake_load.notify_one();
    shared.wake_tick.notify_one();
    shared.notify_flows();
    store_outputs(shared, &outputs).await;
    Remainder { unsettled, failed: None }
}

/// Settles a batch of lost or overdue claims. If the database refuses the data of a settlement, halves the batch until that
/// settlement is found. Its answer is `Locked`, and the next search finds its claim again.
pub(crate) async fn settle_in_parts(
    shared: &Shared,
    doing: &'static str,
    settles: &[Settle],
) -> Result<Vec<SettleAnswer>, StoreError> {
    let (mut answers, mut parts) = (Vec::with_capacity(settles.len()), vec![settles]);
    while let Some(part) = parts.pop() {
        match (shared.call(doing, shared.parts.store.settle(part)).await, part) {
            (Ok(answered), _) => answers.extend(answered),
            (Err(error), [settle]) if error.is_for_its_data() => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(run = %settle.settlement.run, %error, source, "a lost run cannot be settled; trying again");
                answers.push(SettleAnswer::Locked);
            }
            (Err(error), part) if error.is_for_its_data() => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok(answers)
}

/// Prepares the retry of a settlement that failed alone. If the database refuses its data, it is retried without output and
/// error text.
fn failed_alone(pending: &mut Unsettled<Pending>, refused: bool) {
    let settlement = &mut pending.item.settle.settlement;
    if refused
        && (settlement.output.is_some() || settlement.error.as_ref().is_some_and(|error| error != ERROR_NOT_STORED))
    {
        (settlement.output, settlement.error) = (None, settlement.error.take().map(|_| ERROR_NOT_STORED.to_owned()));
    } else {
        pending.failed_alone(MonoTime::now());
    }
}

/// Applies all answers to memory under one lock. Returns whether a waiting run may start now.
fn apply(shared: &Shared, group: &[Unsettled<Pending>], answers: &[SettleAnswer]) -> bool {
    let mut memory = shared.memory();
    let (mut waits, mut succeeded) = (false, 0);
    for (Unsettled { item: pending, .. }, answer) in group.iter().zip(answers) {
        let (job, settlement) = (pending.settle.job, &pending.settle.settlement);
        match answer {
            SettleAnswer::Settled => {
                waits |= memory.settled(job, settlement.run, settlement.fence, settlement.verdict, pending.attempt);
                match settlement.verdict {
                    Verdict::Succeeded => succeeded += 1,
                    verdict => count(verdict, 1),
                }
            }
            SettleAnswer::Stale => {
                memory.refused(job, settlement.run, settlement.fence);
                waits = true;
            }
            SettleAnswer::Locked => memory.unsettled(job),
        }
    }
    if succeeded > 0 {
        count(Verdict::Succeeded, succeeded);
    }
    waits
}

/// The output of a run whose work was stopped because a user cancelled the run. The run has ended before, so its settlement is
/// refused, but its output is still stored.
fn cancelled_output(pending: &Pending) -> Option<KeptOutput> {
    let settlement = &pending.settle.settlement;
    let output = settlement.output.clone().filter(|_| settlement.verdict == Verdict::Cancelled)?;
    Some(KeptOutput { run: settlement.run, attempt: pending.attempt, output })
}

async fn store_outputs(shared: &Arc<Shared>, outputs: &[KeptOutput]) {
    if outputs.is_empty() {
        return;
    }
    let call = shared.parts.store.keep_outputs(outputs);
    if let Err(error) = shared.call("store the outputs of cancelled runs", call).await {
        tracing::warn!(%error, runs = outputs.len(), "could not store the output of cancelled runs");
    }
}

/// Pauses the job in a task of its own: an edit may wait for the job's lock, and settlements must not.
fn pause(shared: &Arc<Shared>, pending: Pending, note: String) {
    let task = pause_job(shared.clone(), pending, note);
    shared.parts.spawn.spawn(Box::pin(shared.loops.track_future(task)));
}

async fn pause_job(shared: Arc<Shared>, pending: Pending, note: String) {
    let settle = &pending.settle;
    let change = Change::Pause { note: Some(note.clone()) };
    let edit = EditJob { job: JobRef::Id(settle.job), change, if_match: None, cancel: false };
    let actor = Actor::node(&shared.parts.settings.node);
    let call = shared.parts.store.edit_job(settle.tenant, &actor, edit);
    match shared.call("pause a job whose receiver is gone", call).await {
        Ok(_) => {
            tracing::warn!(job = pending.name, run = %settle.settlement.run, note, "a job was paused: its receiver is gone")
        }
        Err(error) => {
            tracing::error!(%error, job = pending.name, note, "could not pause a job whose receiver is gone")
        }
    }
}
