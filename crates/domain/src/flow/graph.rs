//! The graph of one flow at the moment the flow was opened. It is stored with the flow, so an edit of a job affects only later
//! flows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::When;
use crate::{
    ids::{Cause, JobId, RunId},
    run::State,
};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Graph {
    /// The job whose run opened the flow; that run's id is the flow's id. `None` for a rerun.
    pub root: Option<JobId>,
    /// Ordered so that parents come before their children.
    pub nodes: Vec<Node>,
    /// Parents that ended in the original flow, if this flow is a rerun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<Outside>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub job: JobId,
    pub name: String,
    pub parents: Vec<Edge>,
    /// Its run opens the flow or was requested by a rerun: its parents are not checked.
    #[serde(default)]
    pub starts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Edge {
    pub job: JobId,
    pub when: When,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outside {
    pub job: JobId,
    pub name: String,
    pub run: RunId,
    /// Code of the state in which the run ended.
    pub ended: i16,
}

impl Outside {
    #[must_use]
    pub fn state(&self) -> State {
        State::from_code(self.ended)
    }
}

impl Graph {
    /// The id of a job's run in a flow of this graph. It is always the same, so the run is created once, even if several
    /// parents end at the same time.
    #[must_use]
    pub fn run_of(&self, flow: RunId, job: JobId) -> RunId {
        if self.root == Some(job) { flow } else { RunId::of(job, Cause::Parent { flow }) }
    }

    /// Each node with the id of its run.
    pub fn runs(&self, flow: RunId) -> impl Iterator<Item = (&Node, RunId)> + '_ {
        self.nodes.iter().map(move |node| (node, self.run_of(flow, node.job)))
    }

    #[must_use]
    pub fn node(&self, job: JobId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.job == job)
    }

    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The name of a job in the graph or of an outside parent.
    #[must_use]
    pub fn name(&self, job: JobId) -> &str {
        let outside = || self.outside.iter().find(|outside| outside.job == job).map(|outside| outside.name.as_str());
        self.node(job).map(|node| node.name.as_str()).or_else(outside).unwrap_or("?")
    }

    /// The id of a parent's run, in the flow or outside.
    #[must_use]
    pub fn parent_run(&self, flow: RunId, parent: JobId) -> RunId {
        let outside = self.outside.iter().find(|outside| outside.job == parent);
        outside.map_or_else(|| self.run_of(flow, parent), |outside| outside.run)
    }

    /// These jobs and all their descendants.
    pub(super) fn reachable(&self, from: &BTreeSet<JobId>) -> BTreeSet<JobId> {
        let mut reached = from.clone();
        // Parents come first, so one pass finds all.
        for node in &self.nodes {
            if node.parents.iter().any(|edge| reached.contains(&edge.job)) {
                reached.insert(node.job);
            }
        }
        reached
    }

    /// Sorts the nodes by level, parents before children, and by name within a level.
    pub(super) fn ordered(mut self) -> Self {
        let within: BTreeSet<JobId> = self.nodes.iter().map(|node| node.job).collect();
        let mut levels: BTreeMap<JobId, usize> = BTreeMap::new();
        // A definition that makes a cycle is refused. If the graph has a cycle anyway, the loop still ends.
        for _ in 0..self.nodes.len() {
            let mut changed = false;
            for node in &self.nodes {
                let parents = node.parents.iter().filter(|edge| within.contains(&edge.job));
                let above = parents.map(|edge| levels.get(&edge.job).map_or(1, |level| level + 1)).max();
                changed |= levels.insert(node.job, above.unwrap_or(0)) != Some(above.unwrap_or(0));
            }
            if !changed {
                break;
            }
        }
        self.nodes.sort_by(|a, b| {
            let level = |node: &Node| levels.get(&node.job).copied().unwrap_or(0);
            (level(a), &a.name).cmp(&(level(b), &b.name))
        });
        self
    }
}
