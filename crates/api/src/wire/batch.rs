//! One line of a batch's answer.

use everytick_domain::ids::JobId;
use serde::Serialize;
use utoipa::ToSchema;

use super::FieldError;

/// The result of one line.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"line": 1, "name": "nightly-report", "id": "019a8f5e-0000-7000-8000-000000000000", "status": 201}))]
pub(crate) struct BatchLine {
    /// Line number, starting at 1. Empty lines count too.
    pub(crate) line: u64,
    /// The job's name, if it could be read from the line.
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub(crate) id: Option<JobId>,
    /// The status that this job alone would get: 201 when it was created.
    #[schema(minimum = 201, maximum = 599)]
    pub(crate) status: u16,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldError>,
    /// Settings that are accepted but probably a mistake. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<FieldError>,
}
