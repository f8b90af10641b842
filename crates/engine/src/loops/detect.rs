//! Finds dead schedules: jobs with a tick that must be on the record and is not. By the rules this cannot be; by a mistake of
//! ours, a backup that was put back or somebody's SQL it can, and then it is repaired and said aloud. Walks over all jobs, a
//! page at a time, on the node that leads. The same walk deletes the one-shot jobs that are over (`expire`).

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::JobId,
    recovery::{Missing, Window, missing, window},
    time::{DbTime, Span},
};
use everytick_store::{JobTicks, RecordRow, Result, WalkedJob};
use metrics::counter;

use super::{expire, unsure};
use crate::{
    engine::Shared,
    pulse,
    settings::{DEAD_AFTER, DETECT_JOBS_PER_PAGE, DETECT_PAGE_EVERY, DETECT_WALK_EVERY, SUSPECTS_MAX, TICKS_NAMED_MAX},
};

/// Where a walk stands.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    after: Option<JobId>,
    /// Jobs that somebody should have played, and the first tick that was not. A node that has a long backlog to record may
    /// yet come to it, so they are met twice before anything is done.
    suspects: BTreeMap<JobId, DbTime>,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut walk = Walk::default();
    // What was missed while nobody ran is being recorded at first.
    let mut wait = margin(&shared).into();
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let _pass = pulse::pass();
        wait = DETECT_WALK_EVERY;
        if !shared.is_leader() {
            walk = Walk::default();
            continue;
        }
        match pass(&shared, &mut walk).await {
            Ok(_) if walk.after.is_some() => wait = DETECT_PAGE_EVERY,
            Ok(_) => {}
            Err(error) => unsure::report(&shared, &error),
        }
    }
}

/// A tick that is older than this is overdue: its holder had time to play it, or another node to take over and do so.
fn margin(shared: &Shared) -> Span {
    let leases = Span::millis(shared.parts.settings.lease.as_millis() * 2);
    Span::millis(leases.as_millis() + DEAD_AFTER.as_millis())
}

/// A whole walk at once.
pub(crate) async fn walk(shared: &Arc<Shared>) -> Result<usize> {
    let (mut walk, mut repaired) = (Walk::default(), 0);
    loop {
        repaired += pass(shared, &mut walk).await?;
        if walk.after.is_none() {
            return Ok(repaired);
        }
    }
}

/// One page of the walk. Gives how many dead schedules were repaired.
pub(crate) async fn pass(shared: &Arc<Shared>, walk: &mut Walk) -> Result<usize> {
    let asked = shared.parts.store.walk_jobs(walk.after, DETECT_JOBS_PER_PAGE);
    let page = shared.read("walk over the jobs", asked).await?;
    let now = shared.clock.now();
    expire::pass(shared, page.jobs.iter().map(|walked| (&walked.job, walked.cursor)), now).await;
    let (margin, kept) = (margin(shared), shared.parts.settings.history);
    let looked: Vec<(WalkedJob, Window)> = page
        .jobs
        .into_iter()
        .filter_map(|walked| window(&walked.job, now, margin, kept).map(|window| (walked, window)))
        .collect();
    let windows: Vec<_> = looked.iter().map(|(walked, window)| (walked.job.id, *window)).collect();
    let ledgers = shared.read("look what is on the record", shared.parts.store.load_ledgers(&windows)).await?;
    let mut repaired = 0;
    for ((walked, window), ledger) in looked.into_iter().zip(ledgers) {
        let found = missing(&walked.job, walked.cursor, window, &ledger, now);
        if is_dead(&mut walk.suspects, walked.job.id, &found) {
            // One that cannot be repaired keeps nobody from being looked at.
            match repair(shared, &walked, found).await {
                Ok(done) => repaired += usize::from(done),
                Err(error) => unsure::report(shared, &error),
            }
        }
    }
    walk.after = page.last;
    Ok(repaired)
}

/// What the cursor has passed nobody will ever play. What lies from it on may yet be played, until it is met again.
fn is_dead(suspects: &mut BTreeMap<JobId, DbTime>, job: JobId, found: &Missing) -> bool {
    let suspect = suspects.remove(&job);
    if !found.passed.is_empty() {
        return true;
    }
    let Some(first) = found.unplayed.first() else { return false };
    if suspect.is_some_and(|since| since >= *first) {
        return true;
    }
    if suspects.len() < SUSPECTS_MAX {
        suspects.insert(job, *found.unplayed.last().unwrap_or(first));
    }
    false
}

/// Records what was lost, has the job read again by whoever holds it, and says so.
async fn repair(shared: &Arc<Shared>, walked: &WalkedJob, found: Missing) -> Result<bool> {
    let job = &walked.job;
    let ticks: Vec<String> = found.ticks().take(TICKS_NAMED_MAX).map(|tick| tick.to_string()).collect();
    let (passed, unplayed) = (found.passed.len(), found.unplayed.len());
    let lost = JobTicks {
        key: job.spec.key_of(None),
        job: job.id,
        tenant: job.tenant,
        partition: job.partition,
        epoch: walked.epoch,
        priority: job.spec.priority,
        rows: found.passed.into_iter().map(|tick| RecordRow { tick, born_claimed: false }).collect(),
    };
    let done = shared.ask("record lost ticks", shared.parts.store.repair(&shared.lease(), &lost)).await?;
    // Where it was not done the job was changed meanwhile: the next walk looks at what it is now.
    if done {
        counter!("everytick_dead_schedules_total").increment(1);
        tracing::error!(
            job = job.spec.name,
            id = %job.id,
            ticks = ticks.join(" "),
            lost = passed,
            unplayed,
            "a dead schedule: ticks were not on the record; those that were lost are recorded now, and the job is read again"
        );
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unplayed(seconds: &[i64]) -> Missing {
        let tick = |seconds: &i64| DbTime::from_millis(seconds * 1_000);
        Missing { unplayed: seconds.iter().map(tick).collect(), ..Missing::default() }
    }

    #[test]
    fn a_job_that_is_not_played_is_met_twice_before_it_is_dead() {
        let (mut suspects, job) = (BTreeMap::new(), JobId::from_uuid(uuid::Uuid::from_u128(1)));
        assert!(!is_dead(&mut suspects, job, &unplayed(&[10, 20])));
        assert!(is_dead(&mut suspects, job, &unplayed(&[20, 30, 40])), "what was missing then still is");
        assert!(!is_dead(&mut suspects, job, &unplayed(&[40])), "it was repaired, and is met anew");
        assert!(!is_dead(&mut suspects, job, &unplayed(&[50])), "what was missing then has been played");
        assert!(!is_dead(&mut suspects, job, &unplayed(&[])));
        assert!(!is_dead(&mut suspects, job, &unplayed(&[50])), "and is no suspect any more");
    }

    #[test]
    fn suspects_are_remembered_up_to_a_limit() {
        let mut suspects = BTreeMap::new();
        for n in 0..SUSPECTS_MAX as u128 + 5 {
            is_dead(&mut suspects, JobId::from_uuid(uuid::Uuid::from_u128(n)), &unplayed(&[10]));
        }
        assert_eq!(suspects.len(), SUSPECTS_MAX);
    }
}
