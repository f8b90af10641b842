//! Partition ownership: fences only increase, only the owner of a partition writes for its jobs, and at the end every partition
//! is owned.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    ids::{Fence, Incarnation, JobId, RunId},
    time::DbTime,
};
use everytick_sim::{Db, Entry};

use super::checker::Definitions;

/// I9: the fences of leases, partitions and runs.
pub fn fences_only_increase(db: &Db, found: &mut Vec<String>) {
    #[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
    enum Of<'a> {
        Lease(&'a str),
        Partition(u16),
        Run(RunId),
    }
    let mut highest: BTreeMap<Of<'_>, Fence> = BTreeMap::new();
    for entry in db.journal() {
        let (of, fence) = match entry {
            Entry::Leased { node, fence, .. } => (Of::Lease(node), *fence),
            Entry::Acquired { partition, fence, .. } => (Of::Partition(*partition), *fence),
            // A cancel raises the fence too, so that a report on the cancelled claim is refused.
            Entry::Claimed { run, fence, .. } | Entry::Cancelled { run, fence, .. } => (Of::Run(*run), *fence),
            _ => continue,
        };
        match highest.get(&of) {
            Some(before) if *before >= fence => found.push(format!("I9: {of:?} has fence {fence} after {before}")),
            _ => _ = highest.insert(of, fence),
        }
    }
}

/// I10: a node records and claims only in partitions that it owns at that moment, and a stopping node acquires none.
pub fn only_owners_write(db: &Db, jobs: &Definitions<'_>, found: &mut Vec<String>) {
    let mut owners: BTreeMap<u16, Incarnation> = BTreeMap::new();
    let mut retired = BTreeSet::new();
    for entry in db.journal() {
        let (job, by, what) = match entry {
            Entry::Retired { by } => {
                retired.insert(by);
                continue;
            }
            Entry::Acquired { partition, by, .. } => {
                if retired.contains(by) {
                    found.push(format!("I10: {by} is stopping and has acquired partition {partition}"));
                }
                owners.insert(*partition, *by);
                continue;
            }
            Entry::Released { partition, .. } => {
                owners.remove(partition);
                continue;
            }
            Entry::Recorded { job, by: Some(by), .. } => (job, by, "recorded a tick"),
            Entry::RangeRecorded { job, by: Some(by), .. } => (job, by, "recorded a range"),
            // Workers claim for themselves, and only from queues.
            Entry::Claimed { run, job, by, .. } if by.uuid().is_nil() || is_pulled(jobs, job) => {
                if by.uuid().is_nil() != is_pulled(jobs, job) {
                    found.push(format!("{by} claimed {run} of {job}, whose runs it may not claim"));
                }
                continue;
            }
            // The owner has delegated the run.
            Entry::Claimed { delegated: true, .. } => continue,
            Entry::Claimed { job, by, .. } => (job, by, "claimed a run"),
            _ => continue,
        };
        let partition = partition(jobs, job);
        if owners.get(&partition) != Some(by) {
            let owner = owners.get(&partition);
            found.push(format!("I10: {by} {what} of {job} while {owner:?} owned partition {partition}"));
        }
    }
}

fn is_pulled(jobs: &Definitions<'_>, job: &JobId) -> bool {
    jobs[job][0].job.spec.target.queue().is_some()
}

fn partition(jobs: &Definitions<'_>, job: &JobId) -> u16 {
    jobs[job][0].job.partition
}

/// I19: all nodes are alive and share the partitions evenly.
pub fn every_partition_is_owned(db: &Db, nodes: usize, end: DbTime, found: &mut Vec<String>) {
    let cluster = db.cluster(end);
    let mut loads: BTreeMap<Incarnation, usize> = cluster
        .nodes
        .iter()
        .filter(|node| node.until > end && node.may_own)
        .map(|node| (node.incarnation, 0))
        .collect();
    if loads.len() != nodes {
        found.push(format!("I19: {} nodes are alive at the end", loads.len()));
    }
    for row in &cluster.partitions {
        match row.owner.and_then(|owner| loads.get_mut(&owner)) {
            Some(load) => *load += 1,
            None => found.push(format!("I19: no live node owns partition {}", row.partition)),
        }
    }
    let (least, most) = (loads.values().min(), loads.values().max());
    if let (Some(least), Some(most)) = (least, most)
        && most - least > 1
    {
        found.push(format!("I19: one node owns {most} partitions and another {least}"));
    }
}
