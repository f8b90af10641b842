//! Settles the claims of dead nodes. Their runs are lost: each is delivered again with the next attempt, or fails.

use std::sync::Arc;

use everytick_domain::target::Outcome;
use everytick_store::{ClaimedRun, Result, SettleAnswer, StoreError};
use metrics::{counter, gauge};

use super::{
    batch,
    conclude::{EndedAttempt, claim_of, conclude},
};
use crate::{
    cluster::unsure,
    pulse,
    settings::{LOST_PER_BATCH_MAX, REAP_TIMEOUT},
    shared::Shared,
};

/// Settles the claims of dead nodes, as often as the lease is renewed. A separate loop, because it may take longer than a
/// renewal.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(shared.parts.settings.renew_every()) => {}
        }
        let _pass = pulse::pass();
        if let Err(error) = reap(&shared).await {
            unsure::report(&shared, &error);
        }
        // The statement makes no claims and may be repeated, so a lost answer is a plain failure.
        match shared.read("save rows that cannot be decoded", shared.parts.store.save_unreadable()).await {
            Ok(rows) => gauge!("everytick_unreadable_rows").set(rows as f64),
            Err(error) => unsure::report(&shared, &error),
        }
    }
}

/// Settles the claims of expired leases as lost: each run is redelivered under the same id with the next attempt, or fails.
pub(crate) async fn reap(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let lease = shared.lease();
        // The statement reads all runs since the oldest open run of the dead nodes, so it has a longer timeout. It
        // makes no claims, so a lost answer is a plain failure.
        let call = tokio::time::timeout(REAP_TIMEOUT, shared.parts.store.load_lost(&lease, LOST_PER_BATCH_MAX));
        let no_answer = |_| StoreError::Failed { doing: "find lost runs", source: "no answer in time".into() };
        let lost = pulse::untimed(call).await.map_err(no_answer)??;
        if lost.is_empty() {
            return Ok(());
        }
        // No claim of this batch can be settled now: a job cannot be loaded, or another node was faster. Read them again later.
        if settle_lost(shared, &lost).await? == 0 {
            return Ok(());
        }
    }
}

/// Settles these claims as lost. Returns how many claims were settled.
async fn settle_lost(shared: &Arc<Shared>, lost: &[ClaimedRun]) -> Result<usize> {
    let mut ids: Vec<_> = lost.iter().map(|run| run.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let jobs = shared.read("load jobs", shared.parts.store.load_jobs(&ids)).await?;
    let now = shared.clock.now();
    let settles: Vec<_> = lost
        .iter()
        .filter_map(|run| {
            let job = &jobs.iter().find(|loaded| loaded.job.id == run.job)?.job;
            let attempt = EndedAttempt {
                claim: claim_of(run),
                job,
                tenant: run.tenant,
                started_at: None,
                ended_at: now,
                log: None,
            };
            conclude(attempt, Outcome::Lost, now, shared.parts.entropy.as_ref())
        })
        .collect();
    let answers = batch::settle_in_parts(shared, "settle lost runs", &settles).await?;
    let settled = answers.iter().filter(|answer| **answer == SettleAnswer::Settled).count();
    counter!("everytick_runs_lost_total").increment(settled as u64);
    if settled > 0 {
        tracing::info!(runs = settled, "settled runs of dead nodes as lost");
        shared.notify_flows();
    }
    for settle in &settles {
        shared.memory().mark_stale(settle.job);
    }
    shared.wake_load.notify_one();
    shared.wake_claim.notify_one();
    Ok(settled)
}
