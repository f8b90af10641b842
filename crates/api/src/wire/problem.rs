//! A refusal, as RFC 9457 writes it.

use everytick_domain::invalid::Invalid;
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request was refused (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Names the kind of problem; programs may go by it.
    #[serde(rename = "type")]
    #[schema(example = "urn:everytick:problem:invalid")]
    pub(crate) kind: String,
    #[schema(example = "The request is not valid")]
    pub(crate) title: String,
    #[schema(example = 422, minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// All of it in one sentence.
    pub(crate) detail: String,
    /// What is wrong, each with the field where it stands: at most 20.
    pub(crate) errors: Vec<FieldError>,
    /// How many errors more there are than are listed.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub(crate) more_errors: usize,
}

/// So many errors does a problem list.
pub(crate) const ERRORS_MAX: usize = 20;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One thing that is wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// The path of the field as it was written, the name of the parameter or header; empty for the whole.
    #[schema(example = "schedule.cron")]
    pub(crate) field: String,
    /// What is wrong, and what would be right.
    pub(crate) message: String,
}

impl FieldError {
    pub(crate) fn new(field: &str, message: &str) -> Self {
        Self { field: field.to_owned(), message: message.to_owned() }
    }
}

impl From<&Invalid> for FieldError {
    fn from(invalid: &Invalid) -> Self {
        Self::new(&invalid.field, &invalid.message)
    }
}
