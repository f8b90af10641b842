//! Decides the next steps of a flow from the states of its runs. A job is decided when all its parents have ended. It starts if
//! every edge is met; otherwise it is skipped, and its own children see it as ended.

use std::collections::BTreeMap;

use super::Graph;
use crate::{ids::JobId, run::State};

/// The decision about a job whose parents have ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub job: JobId,
    pub fate: Fate,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Its edges are met. [`judge`](super::judge) decides under the job's lock whether it really starts.
    Start,
    /// Recorded as skipped with reason `parent` and this text.
    Skip(String),
}

/// The state of a flow, as shown to users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowState {
    Running,
    Succeeded,
    /// One of its runs failed or was cancelled, or a job was skipped with reason `error`.
    Failed,
    /// The flow was cancelled.
    Cancelled,
}

impl FlowState {
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How many jobs of one flow one transaction starts. Each may have a payload of 256 KiB.
pub const STARTS_PER_STEP_MAX: usize = 100;

/// The decisions that one transaction records for a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decided {
    pub all: Vec<Decision>,
    /// More jobs are to be started than one transaction may start.
    pub more: bool,
}

impl Decided {
    #[must_use]
    pub fn starts(&self) -> Vec<JobId> {
        self.all.iter().filter(|decision| decision.fate == Fate::Start).map(|decision| decision.job).collect()
    }
}

impl Graph {
    /// The decisions of one transaction: every skip, and at most [`STARTS_PER_STEP_MAX`] starts. `None` if the runs that
    /// opened the flow were pruned, because such a flow has ended.
    #[must_use]
    pub fn next_step(&self, states: &BTreeMap<JobId, State>, cancelled: bool) -> Option<Decided> {
        if !self.is_recorded(states) {
            return None;
        }
        let (mut all, mut starts) = (self.advance(states, cancelled), 0);
        let count = all.len();
        all.retain(|decision| {
            starts += usize::from(decision.fate == Fate::Start);
            decision.fate != Fate::Start || starts <= STARTS_PER_STEP_MAX
        });
        let more = all.len() < count;
        Some(Decided { all, more })
    }

    /// The decisions to record now. `states` are the states of the recorded runs. A cancelled flow starts nothing: its
    /// remaining jobs are skipped.
    #[must_use]
    pub fn advance(&self, states: &BTreeMap<JobId, State>, cancelled: bool) -> Vec<Decision> {
        let mut known: BTreeMap<JobId, State> = self.outside.iter().map(|out| (out.job, out.state())).collect();
        known.extend(states);
        let mut decided = Vec::new();
        // Parents come first, so their skips are known when their children are decided.
        for node in &self.nodes {
            if node.starts || states.contains_key(&node.job) {
                continue;
            }
            let ended = |job: &JobId| known.get(job).copied().filter(|state| !state.is_open());
            let parents: Option<Vec<_>> =
                node.parents.iter().map(|edge| ended(&edge.job).map(|state| (edge, state))).collect();
            let Some(parents) = parents else { continue };
            let unmet = parents.iter().find(|(edge, state)| !edge.when.is_met_by(*state));
            let fate = match unmet {
                _ if cancelled => Fate::Skip("the flow was cancelled".to_owned()),
                Some((edge, state)) => {
                    let name = self.name(edge.job);
                    Fate::Skip(format!("parent {name} is {}, not {}", state.word(), edge.when.word()))
                }
                None => Fate::Start,
            };
            if matches!(fate, Fate::Skip(_)) {
                known.insert(node.job, State::Skipped);
            }
            decided.push(Decision { job: node.job, fate });
        }
        decided
    }

    /// Whether the runs that opened the flow are still recorded.
    fn is_recorded(&self, states: &BTreeMap<JobId, State>) -> bool {
        self.nodes.iter().filter(|node| node.starts).all(|node| states.contains_key(&node.job))
    }

    /// The state of the flow. `broken` means that a job was skipped with reason `error`: its work is missing although no run
    /// failed.
    #[must_use]
    pub fn state(&self, states: &BTreeMap<JobId, State>, broken: bool, cancelled: bool) -> FlowState {
        let over = |job: &JobId| states.get(job).is_some_and(|state| !state.is_open());
        if cancelled {
            FlowState::Cancelled
        } else if !self.nodes.iter().all(|node| over(&node.job)) {
            FlowState::Running
        } else if broken || states.values().any(|state| matches!(state, State::Failed | State::Cancelled)) {
            FlowState::Failed
        } else {
            FlowState::Succeeded
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Edge, Edges, When};
    use uuid::Uuid;

    fn job(name: &str) -> JobId {
        JobId::from_uuid(Uuid::from_u128(name.bytes().next().unwrap().into()))
    }

    fn graph(edges: &[(&str, &str, When)]) -> Graph {
        let mut found = Edges::default();
        for (parent, child, when) in edges {
            found.add_job(job(parent), *parent);
            found.add_job(job(child), *child);
            found.add(job(child), job(parent), *when);
        }
        found.graph(job("a"))
    }

    fn advance(graph: &Graph, states: &[(&str, State)]) -> Vec<String> {
        let states = states.iter().map(|(name, state)| (job(name), *state)).collect();
        let described = |decision: Decision| {
            let name = graph.name(decision.job);
            match decision.fate {
                Fate::Start => name.to_owned(),
                Fate::Skip(why) => format!("{name}: {why}"),
            }
        };
        graph.advance(&states, false).into_iter().map(described).collect()
    }

    use State::{Cancelled, Claimed, Failed, Skipped, Succeeded, Waiting};

    /// a -> b, c; b, c -> d; d -> e with `finished`; b -> f with `failed`.
    fn diamond() -> Graph {
        let (yes, no, any) = (When::Succeeded, When::Failed, When::Finished);
        graph(&[("a", "b", yes), ("a", "c", yes), ("b", "d", yes), ("c", "d", yes), ("d", "e", any), ("b", "f", no)])
    }

    #[test]
    fn a_job_is_decided_when_all_its_parents_have_ended() {
        let unmet = "is failed, not succeeded";
        let skipped = "f: parent b is succeeded, not failed";
        for (states, decided) in [
            (&[("a", Waiting)][..], vec![]),
            (&[("a", Claimed)], vec![]),
            (&[("a", Succeeded)], vec!["b", "c"]),
            (&[("a", Succeeded), ("b", Succeeded), ("c", Claimed)], vec![skipped]),
            (&[("a", Succeeded), ("b", Waiting), ("c", Succeeded)], vec![]),
            (&[("a", Succeeded), ("b", Succeeded), ("c", Succeeded)], vec!["d", skipped]),
            (&[("a", Succeeded), ("b", Succeeded), ("c", Succeeded), ("d", Claimed), ("f", Skipped)], vec![]),
            (&[("a", Succeeded), ("b", Succeeded), ("c", Succeeded), ("d", Failed), ("f", Skipped)], vec!["e"]),
            // c has not ended, so d is not skipped yet.
            (&[("a", Succeeded), ("b", Failed), ("c", Claimed)], vec!["f"]),
        ] {
            assert_eq!(advance(&diamond(), states), decided, "{states:?}");
        }
        let failed = advance(&diamond(), &[("a", Succeeded), ("b", Failed), ("c", Succeeded)]);
        assert_eq!(failed, [&format!("d: parent b {unmet}"), "f", "e"], "e starts however d ended");
        let all = advance(&diamond(), &[("a", Failed)]);
        let skipped = [
            format!("b: parent a {unmet}"),
            format!("c: parent a {unmet}"),
            "d: parent b is skipped, not succeeded".into(),
            "f: parent b is skipped, not failed".into(),
            "e".into(),
        ];
        assert_eq!(all, skipped, "a skip propagates with its reason");
    }

    #[test]
    fn a_cancelled_flow_starts_nothing_more() {
        let states = BTreeMap::from([(job("a"), Cancelled)]);
        let decided = diamond().advance(&states, true);
        assert_eq!(decided.len(), 5);
        assert!(decided.iter().all(|decision| decision.fate == Fate::Skip("the flow was cancelled".into())));
    }

    #[test]
    fn outside_parents_count_with_their_end_state() {
        let mut graph = graph(&[("a", "b", When::Succeeded)]);
        let outside = |ended: State| super::super::Outside {
            job: job("x"),
            name: "x".into(),
            run: crate::ids::RunId::floor(crate::time::DbTime::EPOCH),
            ended: ended.code(),
        };
        graph.nodes[1].parents.push(Edge { job: job("x"), when: When::Succeeded });
        graph.outside = vec![outside(Succeeded)];
        assert_eq!(advance(&graph, &[("a", Succeeded)]), ["b"]);
        graph.outside = vec![outside(Cancelled)];
        assert_eq!(advance(&graph, &[("a", Succeeded)]), ["b: parent x is cancelled, not succeeded"]);
    }

    #[test]
    fn a_flow_ends_when_all_its_jobs_have_ended() {
        let graph = graph(&[("a", "b", When::Succeeded), ("a", "c", When::Failed)]);
        let states = |states: &[(&str, State)]| states.iter().map(|(name, state)| (job(name), *state)).collect();
        let state = |ended: &[(&str, State)], cancelled| graph.state(&states(ended), false, cancelled).word();
        assert_eq!(state(&[("a", Claimed)], false), "running");
        assert_eq!(state(&[("a", Succeeded)], false), "running");
        assert_eq!(state(&[("a", Succeeded), ("b", Succeeded), ("c", Skipped)], false), "succeeded");
        assert_eq!(state(&[("a", Failed), ("b", Skipped), ("c", Succeeded)], false), "failed");
        assert_eq!(state(&[("a", Succeeded), ("b", Cancelled), ("c", Skipped)], false), "failed");
        assert_eq!(state(&[("a", Claimed)], true), "cancelled");
        let broken = [("a", Succeeded), ("b", Skipped), ("c", Skipped)];
        assert_eq!(
            graph.state(&states(&broken), true, false).word(),
            "failed",
            "a skip with reason error fails the flow"
        );
        assert_eq!(graph.state(&states(&broken[..2]), true, false).word(), "running");
    }

    #[test]
    fn one_transaction_starts_a_limited_number_of_jobs_and_records_every_skip() {
        let children = 2 * STARTS_PER_STEP_MAX;
        let id = |n: usize| JobId::from_uuid(Uuid::from_u128(1_000 + n as u128));
        let mut edges = Edges::default();
        edges.add_job(job("a"), "a");
        for n in 0..children {
            edges.add_job(id(n), format!("child-{n}"));
            edges.add(id(n), job("a"), if n % 2 == 0 { When::Succeeded } else { When::Failed });
        }
        let graph = edges.graph(job("a"));
        let mut states = BTreeMap::from([(job("a"), State::Succeeded)]);
        let step = graph.next_step(&states, false).unwrap();
        assert_eq!((step.starts().len(), step.all.len(), step.more), (STARTS_PER_STEP_MAX, children, false));

        let mut edges = Edges::default();
        edges.add_job(job("a"), "a");
        for n in 0..=STARTS_PER_STEP_MAX {
            edges.add_job(id(n), format!("child-{n}"));
            edges.add(id(n), job("a"), When::Succeeded);
        }
        let graph = edges.graph(job("a"));
        let step = graph.next_step(&states, false).unwrap();
        assert_eq!((step.all.len(), step.more), (STARTS_PER_STEP_MAX, true));
        states.clear();
        assert_eq!(graph.next_step(&states, false), None, "the run that opened the flow was pruned");
    }
}
