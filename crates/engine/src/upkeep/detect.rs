//! Finds dead schedules: jobs with a past tick that has no record. The invariants exclude this, but a bug, a restored backup or
//! manual SQL can cause it. Then the tick is recorded and an error is logged. The leader checks all jobs, one page at a time.
//! The same search deletes expired one-shot jobs (`expire`).

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::JobId,
    recovery::{Missing, Window, missing, window},
    time::{DbTime, Span},
};
use everytick_store::{JobTicks, RecordRow, Result, WalkedJob};
use metrics::counter;

use super::expire;
use crate::{
    cluster::unsure,
    pulse,
    settings::{DEAD_AFTER, DETECT_JOBS_PER_PAGE, DETECT_PAGE_EVERY, DETECT_WALK_EVERY, SUSPECTS_MAX, TICKS_NAMED_MAX},
    shared::Shared,
};

/// The position of a search.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    after: Option<JobId>,
    /// Jobs with ticks that their owner should have recorded, each with the last such tick. An owner with a long backlog may
    /// still record them, so a job is repaired only when the next search finds the same ticks missing.
    suspects: BTreeMap<JobId, DbTime>,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut walk = Walk::default();
    // After a start, the nodes first record the ticks that were missed while no node ran.
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

/// A tick older than this is overdue: its owner had time to record it, or another node had time to take over and record it.
fn margin(shared: &Shared) -> Span {
    let leases = Span::millis(shared.parts.settings.lease.as_millis() * 2);
    Span::millis(leases.as_millis() + DEAD_AFTER.as_millis())
}

/// Checks all jobs in one call.
pub(crate) async fn walk(shared: &Arc<Shared>) -> Result<usize> {
    let (mut walk, mut repaired) = (Walk::default(), 0);
    loop {
        repaired += pass(shared, &mut walk).await?;
        if walk.after.is_none() {
            return Ok(repaired);
        }
    }
}

/// Checks one page of jobs. Returns how many dead schedules were repaired.
pub(crate) async fn pass(shared: &Arc<Shared>, walk: &mut Walk) -> Result<usize> {
    let call = shared.parts.store.walk_jobs(walk.after, DETECT_JOBS_PER_PAGE);
    let page = shared.read("read a page of all jobs", call).await?;
    let now = shared.clock.now();
    expire::pass(shared, page.jobs.iter().map(|walked| (&walked.job, walked.cursor)), now).await;
    let (margin, history) = (margin(shared), shared.parts.settings.history);
    let checked: Vec<(WalkedJob, Window)> = page
        .jobs
        .into_iter()
        .filter_map(|walked| window(&walked.job, now, margin, history).map(|window| (walked, window)))
        .collect();
    let windows: Vec<_> = checked.iter().map(|(walked, window)| (walked.job.id, *window)).collect();
    let ledgers = shared.read("read recorded ticks", shared.parts.store.load_ledgers(&windows)).await?;
    let mut repaired = 0;
    for ((walked, window), ledger) in checked.into_iter().zip(ledgers) {
        let found = missing(&walked.job, walked.cursor, window, &ledger, now);
        if is_dead(&mut walk.suspects, walked.job.id, &found) {
            // A job that cannot be repaired does not stop the search.
            match repair(shared, &walked, found).await {
                Ok(done) => repaired += usize::from(done),
                Err(error) => unsure::report(shared, &error),
            }
        }
    }
    walk.after = page.last;
    Ok(repaired)
}

/// Whether the schedule of a job is dead. A tick that the cursor has passed will never be recorded. A tick at or after the cursor
/// may still be recorded, so two searches must find it missing.
fn is_dead(suspects: &mut BTreeMap<JobId, DbTime>, job: JobId, found: &Missing) -> bool {
    let suspect = suspects.remove(&job);
    if !found.passed.is_empty() {
        return true;
    }
    let Some(first) = found.overdue.first() else { return false };
    if suspect.is_some_and(|since| since >= *first) {
        return true;
    }
    if suspects.len() < SUSPECTS_MAX {
        suspects.insert(job, *found.overdue.last().unwrap_or(first));
    }
    false
}

/// Records the lost ticks, makes the owner reload the job, and logs an error. Returns `false` if the job was changed meanwhile.
async fn repair(shared: &Arc<Shared>, walked: &WalkedJob, found: Missing) -> Result<bool> {
    let job = &walked.job;
    let ticks: Vec<String> = found.ticks().take(TICKS_NAMED_MAX).map(|tick| tick.to_string()).collect();
    let (passed, overdue) = (found.passed.len(), found.overdue.len());
    let lost = JobTicks {
        key: job.spec.key_of(None),
        job: job.id,
        tenant: job.tenant,
        partition: job.partition,
        epoch: walked.epoch,
        priority: job.spec.priority,
        rows: found.passed.into_iter().map(|tick| RecordRow { tick, born_claimed: false }).collect(),
    };
    let done = shared.call("record lost ticks", shared.parts.store.repair(&shared.lease(), &lost)).await?;
    // If the repair was refused, the job was changed meanwhile. The next search checks the new definition.
    if done {
        counter!("everytick_dead_schedules_total").increment(1);
        tracing::error!(
            job = job.spec.name,
            id = %job.id,
            ticks = ticks.join(" "),
            lost = passed,
            overdue,
            "a dead schedule: ticks had no record; the lost ticks are recorded now, and the job is reloaded"
        );
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overdue(seconds: &[i64]) -> Missing {
        let tick = |seconds: &i64| DbTime::from_millis(seconds * 1_000);
        Missing { overdue: seconds.iter().map(tick).collect(), ..Missing::default() }
    }

    #[test]
    fn a_job_with_unrecorded_ticks_is_dead_when_two_searches_find_them() {
        let (mut suspects, job) = (BTreeMap::new(), JobId::from_uuid(uuid::Uuid::from_u128(1)));
        assert!(!is_dead(&mut suspects, job, &overdue(&[10, 20])));
        assert!(is_dead(&mut suspects, job, &overdue(&[20, 30, 40])), "the same tick is missing again");
        assert!(!is_dead(&mut suspects, job, &overdue(&[40])), "it was repaired, so this is a first finding");
        assert!(!is_dead(&mut suspects, job, &overdue(&[50])), "the tick of the first finding was recorded");
        assert!(!is_dead(&mut suspects, job, &overdue(&[])));
        assert!(!is_dead(&mut suspects, job, &overdue(&[50])), "it is no longer a suspect");
    }

    #[test]
    fn suspects_are_remembered_up_to_a_limit() {
        let mut suspects = BTreeMap::new();
        for n in 0..SUSPECTS_MAX as u128 + 5 {
            is_dead(&mut suspects, JobId::from_uuid(uuid::Uuid::from_u128(n)), &overdue(&[10]));
        }
        assert_eq!(suspects.len(), SUSPECTS_MAX);
    }
}
