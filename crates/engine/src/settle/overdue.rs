//! Settles overdue claims of workers. A run is lost if its worker sent no heartbeat for a lease, and timed out if it takes
//! longer than its job allows. Every node searches, the leader first, so the loss of one node delays no settlement. Settlements
//! are fenced, so two nodes may settle the same claim.

use std::sync::Arc;

use everytick_domain::{target::Outcome, time::Span};
use everytick_store::{OverdueClaim, Result, SettleAnswer};
use metrics::counter;

use super::{
    batch,
    conclude::{EndedAttempt, claim_of, conclude, count},
};
use crate::{
    claim::supersede,
    clock::MonoTime,
    cluster::unsure,
    pulse,
    settings::{LOST_PER_BATCH_MAX, SUPERSEDE_EVERY, WATCH_EVERY, WATCH_GRACE},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut superseded_at = MonoTime::now();
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
        let _pass = pulse::pass();
        let mut result = pass(&shared).await;
        if result.is_ok() && MonoTime::now().since(superseded_at) >= SUPERSEDE_EVERY {
            superseded_at = MonoTime::now();
            result = supersede::in_queues(&shared).await;
        }
        if let Err(error) = result {
            unsure::report(&shared, &error);
        }
    }
}

/// Settles all overdue claims, one batch at a time.
pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let grace = if shared.is_leader() { Span::ZERO } else { WATCH_GRACE };
        let call = shared.parts.store.load_overdue_claims(grace, LOST_PER_BATCH_MAX);
        let overdue = shared.read("find lost workers", call).await?;
        if overdue.is_empty() {
            return Ok(());
        }
        // Another node is settling these claims. Read them again later.
        if settle(shared, overdue).await? == 0 {
            return Ok(());
        }
    }
}

/// Returns how many claims were settled.
async fn settle(shared: &Arc<Shared>, overdue: Vec<OverdueClaim>) -> Result<usize> {
    let now = shared.clock.now();
    let (mut settles, mut lost) = (Vec::new(), Vec::new());
    for OverdueClaim { claim, worker, timed_out } in overdue {
        let timeout = claim.job.spec.timeout;
        // Only a receiver that answered 202 has a claim on a run without a queue.
        let is_accepted = claim.job.spec.target.queue().is_none();
        let outcome = match timed_out {
            true if is_accepted => Outcome::Unreported { after: timeout },
            true => Outcome::TimedOut { after: timeout, output: None },
            false => Outcome::Lost,
        };
        let attempt = EndedAttempt {
            claim: claim_of(&claim.run),
            job: &claim.job,
            tenant: claim.run.tenant,
            started_at: claim.started_at,
            ended_at: claim.started_at.map_or(now, |started_at| now.max(started_at)),
            log: claim.log,
        };
        let Some(settle) = conclude(attempt, outcome, now, shared.parts.entropy.as_ref()) else { continue };
        settles.push(settle);
        lost.push((claim.job, worker, timed_out));
    }
    let answers = batch::settle_in_parts(shared, "settle runs of lost workers", &settles).await?;
    let mut settled = 0;
    for ((settle, answer), (job, worker, timed_out)) in settles.iter().zip(&answers).zip(&lost) {
        if *answer != SettleAnswer::Settled {
            continue;
        }
        settled += 1;
        count(settle.settlement.verdict, 1);
        let outcome = if *timed_out { "timed_out" } else { "lost" };
        counter!("everytick_attempts_total", "target" => job.spec.target.kind(), "outcome" => outcome).increment(1);
        if !timed_out {
            counter!("everytick_runs_lost_total").increment(1);
        }
        let run = settle.settlement.run;
        tracing::info!(job = job.spec.name, %run, worker, "settled a run of a worker as {outcome}");
        shared.parts.hints.runs_ended(job.id, [run]);
    }
    if settled > 0 {
        shared.parts.hints.run_waits();
        shared.notify_flows();
    }
    Ok(settled)
}
