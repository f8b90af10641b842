//! Checks flows. In each flow, every reachable job has one run or one recorded skip. It is recorded only after its
//! parents have ended, as its edges require, and within a limited time after that.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    ids::{JobId, RunId},
    run::{SkipReason, State},
    time::{DbTime, Span},
};
use everytick_sim::{Db, Entry, RunRow};

/// A child is recorded within this time after its parents have ended, once the faults are over.
const ADVANCED_WITHIN: Span = Span::seconds(10);

pub fn check(db: &Db, end: DbTime, found: &mut Vec<String>) {
    let rows: BTreeMap<RunId, &RunRow> = db.all_runs().collect();
    let positions = positions(db, &rows);
    let mut made: BTreeMap<(RunId, JobId), usize> = BTreeMap::new();
    for row in rows.values() {
        if let Some(flow) = row.flow {
            *made.entry((flow, row.job)).or_default() += 1;
        }
    }
    for ((flow, job), times) in &made {
        if *times > 1 {
            found.push(format!("flow: {job} has {times} runs in {flow}"));
        }
    }
    for (flow, graph, cancelled) in db.all_flows() {
        for (node, run) in graph.runs(flow).filter(|(node, _)| !node.starts) {
            let outside = |job: JobId| graph.outside.iter().find(|outside| outside.job == job);
            let parents: Vec<_> = node
                .parents
                .iter()
                .map(|edge| {
                    let run = graph.parent_run(flow, edge.job);
                    let state = outside(edge.job).map(|outside| outside.state());
                    (edge, run, state.or_else(|| rows.get(&run).map(|row| row.state)))
                })
                .collect();
            let over = parents.iter().all(|(_, _, state)| state.is_some_and(|state| !state.is_open()));
            let met =
                over && parents.iter().all(|(edge, _, state)| state.is_some_and(|state| edge.when.is_met_by(state)));
            let Some(row) = rows.get(&run) else {
                let ended = |(_, run, _): &(_, RunId, _)| rows.get(run).and_then(|row| row.finished_at);
                let last = parents.iter().filter_map(ended).max();
                if over && last.is_none_or(|last| last < end.minus(ADVANCED_WITHIN)) {
                    found.push(format!("flow: {} has no record in {flow}, but its parents have ended", node.name));
                }
                continue;
            };
            if row.state != State::Skipped && !met {
                found.push(format!("flow: {run} of {} began in {flow}, but its edges are not met", node.name));
            }
            if row.skip_reason == Some(SkipReason::Parent) && met && !cancelled {
                found.push(format!("flow: {run} of {} was skipped in {flow}, but its edges are met", node.name));
            }
            let began = positions.recorded.get(&run).copied().unwrap_or(usize::MAX);
            for (edge, parent, _) in parents.iter().filter(|(edge, ..)| outside(edge.job).is_none()) {
                if positions.ended.get(parent).is_none_or(|ended| *ended > began) {
                    found.push(format!("flow: {run} was recorded before its parent {} had ended", edge.job));
                }
            }
        }
    }
    for run in db.all_steps() {
        if rows.get(&run).and_then(|row| row.finished_at).is_some_and(|at| at < end.minus(ADVANCED_WITHIN)) {
            found.push(format!("flow: the step of {run}, which has ended, was not processed"));
        }
    }
    roots_open_flows(db, &rows, end, found);
}

/// The positions in the journal at which runs were recorded and ended.
#[derive(Default)]
struct Positions {
    recorded: BTreeMap<RunId, usize>,
    ended: BTreeMap<RunId, usize>,
}

fn positions(db: &Db, rows: &BTreeMap<RunId, &RunRow>) -> Positions {
    let mut positions = Positions::default();
    for (position, entry) in db.journal().iter().enumerate() {
        match entry {
            Entry::Recorded { run, state, .. } => {
                positions.recorded.entry(*run).or_insert(position);
                if *state == State::Skipped && rows.contains_key(run) {
                    positions.ended.insert(*run, position);
                }
            }
            Entry::Settled { run, verdict, .. } if verdict.is_terminal() => {
                _ = positions.ended.insert(*run, position);
            }
            Entry::Cancelled { run, .. } => _ = positions.ended.insert(*run, position),
            _ => {}
        }
    }
    positions
}

/// A run that ended while another job depended on its job has opened a flow. Dependencies that were removed later are
/// not checked.
fn roots_open_flows(db: &Db, rows: &BTreeMap<RunId, &RunRow>, end: DbTime, found: &mut Vec<String>) {
    let mut names: BTreeMap<String, JobId> = BTreeMap::new();
    // The position in the journal since which a job depends on another.
    let mut since: BTreeMap<(JobId, JobId), usize> = BTreeMap::new();
    let mut ended: Vec<(usize, RunId, JobId)> = Vec::new();
    for (position, entry) in db.journal().iter().enumerate() {
        match entry {
            Entry::Created { job, .. } | Entry::Edited { job, .. } => {
                names.insert(job.spec.name.clone(), job.id);
                let parents: BTreeSet<JobId> = match job.deleted_at {
                    Some(_) => BTreeSet::new(),
                    None => job.spec.depends_on.iter().filter_map(|on| names.get(&on.job)).copied().collect(),
                };
                since.retain(|(child, parent), _| *child != job.id || parents.contains(parent));
                for parent in parents {
                    since.entry((job.id, parent)).or_insert(position);
                }
            }
            Entry::Settled { run, job, verdict, .. } if verdict.is_terminal() => ended.push((position, *run, *job)),
            Entry::Cancelled { run, job, .. } => ended.push((position, *run, *job)),
            _ => {}
        }
    }
    let flows: BTreeSet<RunId> = db.all_flows().map(|(flow, ..)| flow).collect();
    for (position, run, job) in ended {
        let row = rows[&run];
        let recent = row.finished_at.is_none_or(|at| at >= end.minus(ADVANCED_WITHIN));
        let followed = since.iter().any(|((_, parent), since)| *parent == job && *since < position);
        if row.flow.is_none() && followed && !recent && !flows.contains(&run) {
            found.push(format!("flow: {run} of {job} has ended and other jobs depend on it, but no flow was opened"));
        }
    }
}
