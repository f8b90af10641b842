//! Flows: jobs that start when other jobs end. An edge states how a parent must end for its child to start. A flow is all jobs
//! reachable from one root; in it, each job has one run or one recorded skip with its reason. The store reads a graph or a
//! flow's states under its locks, calls this module, and writes the result.

mod advance;
mod edges;
mod graph;
mod judge;
mod rerun;
mod template;

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, job::JobSpec, run::State};

pub use advance::{Decided, Decision, Fate, FlowState, STARTS_PER_STEP_MAX};
pub use edges::{Edges, in_order};
pub use graph::{Edge, Graph, Node, Outside};
pub use judge::{Child, Judged, judge, judge_rerun};
pub use rerun::{Ended, rerun};
pub use template::{Ancestor, PLACEHOLDERS_MAX, check_outside, is_template, render};

/// Maximum number of parents of one job.
pub const PARENTS_MAX: usize = 50;
/// Maximum number of jobs connected by edges, and so of jobs in a flow.
pub const FLOW_JOBS_MAX: usize = 1_000;

/// How a parent must end for its child to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    #[default]
    Succeeded,
    Failed,
    /// Any end state: succeeded, failed, cancelled or skipped.
    Finished,
}

impl When {
    pub const ALL: [Self; 3] = [Self::Succeeded, Self::Failed, Self::Finished];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Finished => "finished",
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|when| when.word() == word)
    }

    /// Codes are stored and never change.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Succeeded => 1,
            Self::Failed => 2,
            Self::Finished => 3,
        }
    }

    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|when| i64::from(when.code()) == code)
    }

    /// Whether a parent that ended in this state lets its child start.
    #[must_use]
    pub const fn is_met_by(self, ended: State) -> bool {
        match self {
            Self::Succeeded => matches!(ended, State::Succeeded),
            Self::Failed => matches!(ended, State::Failed),
            Self::Finished => !ended.is_open(),
        }
    }
}

/// A parent, as a job's definition names it. A job with children cannot be renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DependsOn {
    pub job: String,
    #[serde(default)]
    pub when: When,
}

/// The errors in a definition's parents and in the placeholders of its payload.
#[must_use]
pub fn problems(spec: &JobSpec) -> Vec<Invalid> {
    let mut found = Vec::new();
    let count = spec.depends_on.len();
    if count > PARENTS_MAX {
        found.push(Invalid::new("depends_on", format!("names {count} jobs; at most {PARENTS_MAX} are allowed")));
    }
    for (index, parent) in spec.depends_on.iter().enumerate() {
        let field = format!("depends_on[{index}].job");
        if parent.job == spec.name {
            found.push(Invalid::new(&field, format!("{:?} is the job itself: {0} -> {0} is a cycle", parent.job)));
        }
        if spec.depends_on[..index].iter().any(|before| before.job == parent.job) {
            found.push(Invalid::new(field, format!("{:?} is named twice", parent.job)));
        }
    }
    found.extend(template::problems(spec));
    found
}

/// The error for a parent that does not exist.
#[must_use]
pub fn unknown_parent(index: usize, name: &str) -> Invalid {
    Invalid::new(format!("depends_on[{index}].job"), format!("there is no job {name:?}; create it first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::tests::spec, time::Span};

    #[test]
    fn an_edge_is_met_by_the_end_states_that_it_names() {
        for (when, met) in [
            (When::Succeeded, &[State::Succeeded][..]),
            (When::Failed, &[State::Failed]),
            (When::Finished, &[State::Succeeded, State::Failed, State::Cancelled, State::Skipped]),
        ] {
            for state in State::ALL {
                assert_eq!(when.is_met_by(*state), met.contains(state), "{when:?} {state:?}");
            }
            assert_eq!(When::from_code(when.code().into()), Some(when));
            assert_eq!(When::from_word(when.word()), Some(when));
        }
    }

    #[test]
    fn a_definition_with_itself_duplicates_or_too_many_parents_is_refused() {
        let named = |names: &[&str]| {
            let mut spec = spec(Span::minutes(1));
            spec.depends_on =
                names.iter().map(|name| DependsOn { job: (*name).to_owned(), when: When::default() }).collect();
            problems(&spec).into_iter().map(|invalid| invalid.to_string()).collect::<Vec<_>>()
        };
        assert!(named(&["a", "b"]).is_empty());
        assert_eq!(named(&["j"]), ["depends_on[0].job: \"j\" is the job itself: j -> j is a cycle"]);
        assert_eq!(named(&["a", "a"]), ["depends_on[1].job: \"a\" is named twice"]);
        let many: Vec<_> = (0..=PARENTS_MAX).map(|n| format!("p{n}")).collect();
        let many = named(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(many, ["depends_on: names 51 jobs; at most 50 are allowed"]);
    }
}
