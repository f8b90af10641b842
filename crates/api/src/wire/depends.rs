//! The `depends_on` of a job: its parents and how each must end.

use everytick_domain::flow::{DependsOn, When};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A job that must end before this one starts.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DependsOn)]
pub(crate) struct Parent {
    /// Name or id of the parent.
    #[schema(max_length = 128, example = "extract")]
    pub(crate) job: String,
    /// How the parent must end.
    #[serde(default)]
    #[schema(inline, default = "succeeded")]
    pub(crate) when: Ended,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    #[default]
    Succeeded,
    Failed,
    /// In any way, also cancelled or skipped.
    Finished,
}

same_words! {
    Ended = When { Succeeded, Failed, Finished }
}

impl From<&DependsOn> for Parent {
    fn from(parent: &DependsOn) -> Self {
        Self { job: parent.job.clone(), when: parent.when.into() }
    }
}

impl From<Parent> for DependsOn {
    fn from(parent: Parent) -> Self {
        Self { job: parent.job, when: parent.when.into() }
    }
}
