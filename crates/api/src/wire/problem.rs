//! The body of an error answer (RFC 9457).

use everytick_domain::invalid::Invalid;
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request was refused (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The kind of problem, stable for programs.
    #[serde(rename = "type")]
    #[schema(example = "urn:everytick:problem:invalid")]
    pub(crate) kind: String,
    #[schema(example = "The request is not valid")]
    pub(crate) title: String,
    #[schema(example = 422, minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// All errors in one text.
    pub(crate) detail: String,
    /// Each error with its field; at most 20.
    pub(crate) errors: Vec<FieldError>,
    /// Number of errors beyond those listed.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub(crate) more_errors: usize,
}

/// Maximum number of errors that a problem lists.
pub(crate) const ERRORS_MAX: usize = 20;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// The path of the field as the client wrote it, or the name of the parameter or header. Empty for the whole request.
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
