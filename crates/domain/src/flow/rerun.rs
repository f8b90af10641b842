//! Reruns a flow from some of its jobs: a new flow of these jobs and all their descendants. Parents outside the rerun
//! keep the state in which they ended.

use std::collections::{BTreeMap, BTreeSet};

use super::{Graph, Node, Outside};
use crate::{
    ids::{JobId, RunId},
    invalid::Invalid,
    run::State,
};

/// How many jobs the error about an unknown job lists.
const JOBS_NAMED_MAX: usize = 20;

/// How a run of the original flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    pub run: RunId,
    pub state: State,
    /// Whether it was skipped with reason `error`.
    pub broken: bool,
}

/// The graph of a rerun from the named jobs. If no job is named: from every job that failed, was cancelled or was skipped with
/// reason `error`.
pub fn rerun(old: &Graph, runs: &BTreeMap<JobId, Ended>, from: &[String]) -> Result<Graph, Vec<Invalid>> {
    let needs_rerun = |ended: &Ended| ended.broken || matches!(ended.state, State::Failed | State::Cancelled);
    let has_failed = |node: &&Node| runs.get(&node.job).is_some_and(needs_rerun);
    let mut chosen: BTreeSet<JobId> = old.nodes.iter().filter(has_failed).map(|node| node.job).collect();
    if !from.is_empty() {
        let find = |(index, name): (usize, &String)| {
            let field = format!("from[{index}]");
            let id = name.parse::<JobId>().ok();
            let node = old.named(name).or_else(|| id.and_then(|id| old.node(id)));
            node.map(|node| node.job).ok_or_else(|| {
                let jobs: Vec<&str> = old.nodes.iter().take(JOBS_NAMED_MAX).map(|node| old.name(node.job)).collect();
                let more = if old.nodes.len() > jobs.len() { ", …" } else { "" };
                let message = format!("the flow has no job {name:?}; its jobs are {}{more}", jobs.join(", "));
                Invalid::new(field, message)
            })
        };
        let (found, wrong): (Vec<_>, Vec<_>) = from.iter().enumerate().map(find).partition(Result::is_ok);
        if !wrong.is_empty() {
            return Err(wrong.into_iter().filter_map(Result::err).collect());
        }
        chosen = found.into_iter().flatten().collect();
    }
    if chosen.is_empty() {
        let message = "no run of the flow failed, was cancelled or was skipped by an error; name the jobs to rerun";
        return Err(vec![Invalid::new("from", message)]);
    }
    let reached = old.reachable(&chosen);
    let has_not_ended = |job: &&JobId| runs.get(job).is_none_or(|ended| ended.state.is_open());
    if let Some(job) = reached.iter().find(has_not_ended) {
        let message = format!("the run of {:?} has not ended; wait for it, or cancel the flow", old.name(*job));
        return Err(vec![Invalid::new("from", message)]);
    }
    // A chosen job that descends from another chosen job starts after it.
    let follows = |job: &JobId| {
        let others: BTreeSet<JobId> = chosen.iter().copied().filter(|other| other != job).collect();
        old.reachable(&others).contains(job)
    };
    let starts: BTreeSet<JobId> = chosen.iter().copied().filter(|job| !follows(job)).collect();
    let within = old.nodes.iter().filter(|node| reached.contains(&node.job));
    let nodes: Vec<Node> = within.map(|node| Node { starts: starts.contains(&node.job), ..node.clone() }).collect();
    let parents: BTreeSet<JobId> = nodes.iter().flat_map(|node| &node.parents).map(|edge| edge.job).collect();
    let outside = |job: &JobId| {
        let older = old.outside.iter().find(|outside| outside.job == *job).cloned();
        let ended = runs.get(job).map(|ended| Outside {
            job: *job,
            name: old.name(*job).to_owned(),
            run: ended.run,
            ended: ended.state.code(),
        });
        ended.or(older)
    };
    let outside = parents.iter().filter(|job| !reached.contains(job)).filter_map(outside).collect();
    Ok(Graph { root: None, nodes, outside }.ordered())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flow::{Edges, When},
        time::DbTime,
    };
    use uuid::Uuid;

    fn job(name: &str) -> JobId {
        JobId::from_uuid(Uuid::from_u128(name.bytes().next().unwrap().into()))
    }

    /// a -> b, c; b, c -> d; d -> e.
    fn old() -> Graph {
        let mut edges = Edges::default();
        for (parent, child) in [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")] {
            edges.add_job(job(parent), parent);
            edges.add_job(job(child), child);
            edges.add(job(child), job(parent), When::Succeeded);
        }
        edges.graph(job("a"))
    }

    /// The jobs where the rerun starts, their descendants, and the parents outside.
    type Names = Result<[Vec<String>; 3], String>;

    fn again(states: &[(&str, State)], from: &[&str]) -> Names {
        let run = RunId::floor(DbTime::EPOCH);
        let runs =
            states.iter().map(|(name, state)| (job(name), Ended { run, state: *state, broken: false })).collect();
        let from: Vec<_> = from.iter().map(|name| (*name).to_owned()).collect();
        let graph = rerun(&old(), &runs, &from).map_err(|found| found[0].to_string())?;
        let names = |nodes: Vec<&Node>| nodes.iter().map(|node| node.name.clone()).collect();
        let starts = names(graph.nodes.iter().filter(|node| node.starts).collect());
        let rest = names(graph.nodes.iter().filter(|node| !node.starts).collect());
        Ok([starts, rest, graph.outside.iter().map(|outside| outside.name.clone()).collect()])
    }

    use State::{Cancelled, Claimed, Failed, Skipped, Succeeded};

    fn named(starts: &[&str], rest: &[&str], outside: &[&str]) -> Names {
        Ok([starts, rest, outside].map(|names| names.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[test]
    fn a_rerun_starts_at_the_failed_jobs_and_includes_their_descendants() {
        let failed = [("a", Succeeded), ("b", Failed), ("c", Succeeded), ("d", Skipped), ("e", Skipped)];
        assert_eq!(again(&failed, &[]), named(&["b"], &["d", "e"], &["a", "c"]));
        let both = [("a", Succeeded), ("b", Failed), ("c", Cancelled), ("d", Skipped), ("e", Skipped)];
        assert_eq!(again(&both, &[]), named(&["b", "c"], &["d", "e"], &["a"]));
        assert_eq!(again(&failed, &["a"]), named(&["a"], &["b", "c", "d", "e"], &[]));
        // A job that descends from another chosen job starts after it.
        let later = [("a", Succeeded), ("b", Failed), ("c", Succeeded), ("d", Skipped), ("e", Failed)];
        assert_eq!(again(&later, &[]), named(&["b"], &["d", "e"], &["a", "c"]));
    }

    #[test]
    fn an_impossible_rerun_is_refused_with_its_reason() {
        let well = [("a", Succeeded), ("b", Succeeded), ("c", Succeeded), ("d", Succeeded), ("e", Succeeded)];
        assert!(again(&well, &[]).unwrap_err().starts_with("from: no run of the flow failed"));
        assert_eq!(again(&well, &["x"]).unwrap_err(), "from[0]: the flow has no job \"x\"; its jobs are a, b, c, d, e");
        let going = [("a", Succeeded), ("b", Failed), ("c", Succeeded), ("d", Claimed)];
        assert!(again(&going, &[]).unwrap_err().contains("\"d\" has not ended"));
    }
}
