//! Files what came of attempts, in groups: one commit for all that ended within a few milliseconds. Push, report and loss
//! all end in the same settlement.

use std::{collections::VecDeque, sync::Arc};

use everytick_domain::{
    edit::Change,
    run::{Policy, Verdict},
    target::Outcome,
};
use everytick_store::{Actor, EditJob, JobRef, KeptOutput, Result, Settle, SettleAnswer, StoreError};
use metrics::counter;
use tokio::sync::mpsc;

use super::{deliver::Ended, unsure};
use crate::{
    engine::Shared,
    settings::{FAILURE_PAUSE, SETTLE_BYTES_MAX, SETTLE_GROUP, SETTLES_PER_BATCH_MAX},
};

/// A settlement on its way, with the attempt it ends.
struct Filed {
    settle: Settle,
    attempt: u32,
    /// The job's name, for the log.
    name: String,
}

impl Filed {
    fn bytes(&self) -> usize {
        let said = &self.settle.settlement;
        said.output.as_ref().map_or(0, String::len) + said.error.as_ref().map_or(0, String::len)
    }
}

pub(crate) async fn run(shared: Arc<Shared>, mut ended: mpsc::UnboundedReceiver<Ended>) {
    loop {
        let first = tokio::select! {
            biased;
            first = ended.recv() => first,
            () = shared.stopped.cancelled() => None,
        };
        let Some(first) = first else { return };
        tokio::time::sleep(SETTLE_GROUP).await;
        let mut group: Vec<_> = file(&shared, first).into_iter().collect();
        let mut bytes = group.iter().map(Filed::bytes).sum::<usize>();
        while group.len() < SETTLES_PER_BATCH_MAX
            && bytes < SETTLE_BYTES_MAX
            && let Ok(next) = ended.try_recv()
        {
            let filed = file(&shared, next);
            bytes += filed.as_ref().map_or(0, Filed::bytes);
            group.extend(filed);
        }
        settle_all(&shared, group).await;
        if shared.stopped.is_cancelled() {
            return;
        }
    }
}

/// Files a group until all of it is answered. A group that fails is halved, so that one settlement that cannot be filed holds
/// up no other; one that is refused for what it says is filed without its words.
async fn settle_all(shared: &Arc<Shared>, group: Vec<Filed>) {
    let mut groups = VecDeque::from([group]);
    while let Some(mut group) = groups.pop_front() {
        if group.is_empty() {
            continue;
        }
        let Err(error) = pass(shared, &group).await else { continue };
        if shared.stopped.is_cancelled() {
            return;
        }
        if group.len() > 1 {
            let rest = group.split_off(group.len() / 2);
            groups.extend([group, rest]);
        } else {
            if matches!(error, StoreError::Refused { .. }) {
                let said = &mut group[0].settle.settlement;
                (said.output, said.error) = (None, said.error.take().map(|_| "its error could not be kept".to_owned()));
            }
            groups.push_back(group);
        }
        tokio::time::sleep(FAILURE_PAUSE).await;
    }
}

fn file(shared: &Shared, ended: Ended) -> Option<Filed> {
    let Ended { held, outcome, started_at, ended_at } = ended;
    let (job, attempt) = (held.job, held.claim.attempt);
    let policy = Policy { retry: job.spec.retry, on_lost: job.spec.on_lost };
    // Only when to try again is left to chance.
    let random = if matches!(outcome, Outcome::Succeeded { .. }) { 0 } else { shared.parts.entropy.u64() };
    let settlement = held.claim.settle(outcome, policy, shared.clock.now(), random)?;
    let settle = Settle {
        settlement,
        job: job.id,
        tenant: held.tenant,
        partition: job.partition,
        priority: job.spec.priority,
        started_at,
        ended_at,
    };
    Some(Filed { settle, attempt, name: job.spec.name.clone() })
}

/// Files one group. After an error it has to be sent again: a settlement that was committed already is then refused, because
/// its run is no longer claimed under that fence.
async fn pass(shared: &Arc<Shared>, group: &[Filed]) -> Result<()> {
    {
        let mut memory = shared.memory();
        for filed in group {
            memory.settling(filed.settle.job);
        }
    }
    let settles: Vec<_> = group.iter().map(|filed| filed.settle.clone()).collect();
    let answers = match shared.ask("settle runs", shared.parts.store.settle(&settles)).await {
        Ok(answers) => answers,
        Err(error) => {
            for filed in group {
                shared.memory().unsettled(filed.settle.job);
            }
            unsure::report(shared, &error);
            return Err(error);
        }
    };
    let (mut kept, waits) = (Vec::new(), take_in(shared, group, &answers));
    for (filed, answer) in group.iter().zip(answers) {
        let said = &filed.settle.settlement;
        match answer {
            SettleAnswer::Settled => {
                if said.verdict == Verdict::Failed {
                    tracing::warn!(job = filed.name, run = %said.run, attempt = filed.attempt, error = said.error, "a run failed");
                }
                if let Some(note) = &said.pause {
                    pause(shared, &filed.settle, note.clone()).await;
                }
            }
            SettleAnswer::Stale => {
                counter!("everytick_settles_refused_total").increment(1);
                kept.extend(printed(filed));
            }
        }
    }
    // A look at what waits is a transaction: none is made where nothing does.
    if waits {
        shared.wake_claim.notify_one();
    }
    shared.wake_load.notify_one();
    shared.wake_tick.notify_one();
    shared.tell_steps();
    keep(shared, &kept).await;
    Ok(())
}

/// Takes in what was answered, all of it at once. Tells whether something waits that may start now.
fn take_in(shared: &Shared, group: &[Filed], answers: &[SettleAnswer]) -> bool {
    let mut memory = shared.memory();
    let (mut waits, mut succeeded) = (false, 0);
    for (filed, answer) in group.iter().zip(answers) {
        let (job, said) = (filed.settle.job, &filed.settle.settlement);
        match answer {
            SettleAnswer::Settled => {
                waits |= memory.settled(job, said.run, said.fence, said.verdict, filed.attempt);
                match said.verdict {
                    Verdict::Succeeded => succeeded += 1,
                    verdict => count(verdict, 1),
                }
            }
            SettleAnswer::Stale => {
                memory.refused(job, said.run, said.fence);
                waits = true;
            }
        }
    }
    if succeeded > 0 {
        count(Verdict::Succeeded, succeeded);
    }
    waits
}

/// What was stopped because somebody had cancelled it is over already; what it had printed by then is worth keeping.
fn printed(filed: &Filed) -> Option<KeptOutput> {
    let said = &filed.settle.settlement;
    let output = said.output.clone().filter(|_| said.verdict == Verdict::Cancelled)?;
    Some(KeptOutput { run: said.run, attempt: filed.attempt, output })
}

async fn keep(shared: &Arc<Shared>, kept: &[KeptOutput]) {
    if kept.is_empty() {
        return;
    }
    if let Err(error) = shared.ask("keep the outputs of cancelled runs", shared.parts.store.keep_outputs(kept)).await {
        tracing::warn!(%error, runs = kept.len(), "what cancelled runs had printed could not be kept");
    }
}

/// Counts settlements by the state they brought their runs to.
pub(crate) fn count(verdict: Verdict, settled: u64) {
    let state = match verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Failed => "failed",
        Verdict::Cancelled => "cancelled",
        Verdict::Retry { .. } | Verdict::Redeliver | Verdict::HandBack => "waiting",
    };
    counter!("everytick_runs_total", "state" => state).increment(settled);
}

async fn pause(shared: &Shared, settle: &Settle, note: String) {
    let change = Change::Pause { note: Some(note) };
    let edit = EditJob { job: JobRef::Id(settle.job), change, if_match: None, cancel: false };
    let actor = Actor(format!("node {}", shared.parts.settings.node));
    let asked = shared.parts.store.edit_job(settle.tenant, &actor, edit);
    if let Err(error) = shared.ask("pause a job whose receiver is gone", asked).await {
        tracing::error!(%error, job = %settle.job, "a job whose receiver is gone could not be paused");
    }
}
