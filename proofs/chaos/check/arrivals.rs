//! Checks the deliveries: none early, each attempt once, each tick under one id, none after a pause or delete. Also checks that
//! the recorded result of an attempt is what the sink answered.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Findings;
use crate::{
    history::{Delivery, History, State},
    oracle,
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    findings.deliveries = history.deliveries.len() as u64;
    check_early(history, findings);
    check_doubled(history, findings);
    check_recorded(history, findings);
    check_results(history, findings);
    check_probes(history, findings);
}

fn check_early(history: &History, findings: &mut Findings) {
    for delivery in &history.deliveries {
        // The latest time that the database clock can have shown.
        let arrived = delivery.arrived_at + history.offset.high;
        if arrived < delivery.scheduled_at {
            findings.early.note(|| {
                let early = delivery.scheduled_at - arrived;
                format!("{} of {} was delivered {early} ms early, by {}", delivery.run, delivery.job, delivery.node)
            });
        }
    }
}

fn check_doubled(history: &History, findings: &mut Findings) {
    let mut attempts: HashMap<(&str, u32), Vec<&Delivery>> = HashMap::new();
    let mut ids: BTreeMap<(&str, i64), BTreeSet<&str>> = BTreeMap::new();
    let mut runs: HashSet<&str> = HashSet::new();
    for delivery in &history.deliveries {
        attempts.entry((&delivery.run, delivery.attempt)).or_default().push(delivery);
        ids.entry((&delivery.job, delivery.scheduled_at)).or_default().insert(&delivery.run);
        findings.redelivered += u64::from(!runs.insert(&delivery.run));
    }
    for ((run, attempt), seen) in attempts.iter().filter(|(_, seen)| seen.len() > 1) {
        findings.doubled.note(|| {
            let from: Vec<_> =
                seen.iter().map(|one| format!("{} at {} with fence {}", one.node, one.arrived_at, one.fence)).collect();
            format!("attempt {attempt} of {run} ({}) was delivered by {}", seen[0].job, from.join(" and "))
        });
    }
    for ((job, tick), ids) in ids.iter().filter(|(_, ids)| ids.len() > 1) {
        findings.doubled.note(|| format!("{job}: the tick {tick} was delivered under {} ids", ids.len()));
    }
}

/// Every delivery is a recorded run of a tick that a definition has.
fn check_recorded(history: &History, findings: &mut Findings) {
    let rows: HashMap<&str, _> = history.rows.iter().map(|row| (row.id.as_str(), row)).collect();
    let jobs: HashMap<&str, BTreeSet<i64>> =
        history.jobs.iter().map(|job| (job.name.as_str(), oracle::expected(&job.in_force))).collect();
    for delivery in &history.deliveries {
        let (job, tick) = (&delivery.job, delivery.scheduled_at);
        match rows.get(delivery.run.as_str()) {
            None => findings.unexpected.note(|| format!("{job}: {} was delivered and is not recorded", delivery.run)),
            Some(row) if row.state == State::Skipped => {
                findings.unexpected.note(|| format!("{job}: {} was delivered and is recorded as a skip", delivery.run));
            }
            Some(row) if row.tick != tick || row.job != *job => {
                findings.unexpected.note(|| {
                    format!("{job}: {} was delivered for the tick {tick}; it is recorded for {}", row.id, row.tick)
                });
            }
            Some(_) => {}
        }
        if !jobs.get(job.as_str()).is_some_and(|expected| expected.contains(&tick)) {
            findings.unexpected.note(|| format!("{job}: a delivery of the tick {tick}, which no definition has"));
        }
    }
}

/// A succeeded run has a 2xx answer to that attempt with that fence. A failed run has at least one delivery.
fn check_results(history: &History, findings: &mut Findings) {
    let mut seen: HashMap<(&str, u32, i64), bool> = HashMap::new();
    let mut delivered: HashSet<&str> = HashSet::new();
    for delivery in &history.deliveries {
        let good = delivery.status.is_some_and(|status| (200..300).contains(&status));
        *seen.entry((&delivery.run, delivery.attempt, delivery.fence)).or_default() |= good;
        delivered.insert(&delivery.run);
    }
    for row in &history.rows {
        if row.state == State::Succeeded && seen.get(&(row.id.as_str(), row.attempt, row.fence)) != Some(&true) {
            findings.stale_accepted.note(|| {
                format!(
                    "{}: {} succeeded in attempt {} with fence {}, but the sink did not answer that with 2xx",
                    row.job, row.id, row.attempt, row.fence
                )
            });
        }
        if row.state == State::Failed && !delivered.contains(row.id.as_str()) {
            findings.unsettled.note(|| format!("{}: {} failed without a delivery", row.job, row.id));
        }
    }
}

fn check_probes(history: &History, findings: &mut Findings) {
    for probe in &history.probes {
        match probe.status {
            Some(409) => findings.stale_refused += 1,
            // A server that answers 5xx has not settled the run.
            None | Some(500..) => findings.stale_unanswered += 1,
            Some(status) => findings
                .stale_accepted
                .note(|| format!("{}: a settlement with the old fence {} got {status}", probe.run, probe.fence)),
        }
    }
}
