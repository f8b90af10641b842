//! Jobs that follow other jobs. An edge says how a parent must end for its child to start; what is reachable from one root by
//! edges makes a flow, in which each job has one run, or one recorded skip with its reason. Pure: the store reads a graph or a
//! flow's states under its locks, asks here, and writes the answer.

mod advance;
mod edges;
mod graph;
mod judge;
mod rerun;
mod template;

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, job::JobSpec, run::State};

pub use advance::{Decision, Fate, FlowState};
pub use edges::{Edges, in_order};
pub use graph::{Edge, Graph, Node, Outside};
pub use judge::{Child, Judged, judge};
pub use rerun::{Ended, rerun};
pub use template::{Ancestor, PLACES_MAX, check_outside, is_template, render};

/// Parents of one job.
pub const PARENTS_MAX: usize = 50;
/// Jobs that hang together by edges: no flow has more.
pub const FLOW_JOBS_MAX: usize = 1_000;

/// How a parent must have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    #[default]
    Succeeded,
    Failed,
    /// However it ended: succeeded, failed, cancelled or skipped.
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

    /// Stored; they never change.
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

    /// Whether a parent that ended so lets its child start.
    #[must_use]
    pub const fn is_met_by(self, ended: State) -> bool {
        match self {
            Self::Succeeded => matches!(ended, State::Succeeded),
            Self::Failed => matches!(ended, State::Failed),
            Self::Finished => !ended.is_open(),
        }
    }
}

/// A parent, as a job's definition names it. Jobs that others follow keep their names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DependsOn {
    pub job: String,
    #[serde(default)]
    pub when: When,
}

/// What is wrong with the parents that a definition names, and with the places in its payload that take from them.
#[must_use]
pub fn problems(spec: &JobSpec) -> Vec<Invalid> {
    let mut found = Vec::new();
    let count = spec.depends_on.len();
    if count > PARENTS_MAX {
        found.push(Invalid::new("depends_on", format!("names {count} jobs; at most {PARENTS_MAX} are right")));
    }
    for (place, parent) in spec.depends_on.iter().enumerate() {
        let field = format!("depends_on[{place}].job");
        if parent.job == spec.name {
            found.push(Invalid::new(&field, format!("{:?} is the job itself: {0} -> {0} is a cycle", parent.job)));
        }
        if spec.depends_on[..place].iter().any(|before| before.job == parent.job) {
            found.push(Invalid::new(field, format!("{:?} is named twice", parent.job)));
        }
    }
    found.extend(template::problems(spec));
    found
}

/// What a definition is told of a parent that there is not.
#[must_use]
pub fn unknown_parent(place: usize, name: &str) -> Invalid {
    Invalid::new(format!("depends_on[{place}].job"), format!("there is no job {name:?}; make it first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::tests::spec, time::Span};

    #[test]
    fn an_edge_is_met_by_the_ends_that_it_names() {
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
    fn a_definition_that_names_itself_or_one_parent_twice_or_too_many_is_told_so() {
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
        assert_eq!(many, ["depends_on: names 51 jobs; at most 50 are right"]);
    }
}
