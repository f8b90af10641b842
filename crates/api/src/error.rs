//! Why a request is refused. Only this file knows status codes; the rest of the crate describes the problem.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use everytick_domain::{access::Permission, ids::Fence, invalid::Invalid};
use everytick_engine::types::StoreError;

use crate::{
    missing::Missing,
    wire::{ERRORS_MAX, FieldError, Problem},
};

/// Seconds that a client should wait after 429, or after 503 from a busy node.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"everytick\"");
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// Why a request is refused. Variants differ by what the client should do.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The request cannot be parsed: broken JSON, or a bad query parameter or header.
    Malformed(Vec<Invalid>),
    /// The request can be parsed, but its content is not valid.
    Invalid(Vec<Invalid>),
    /// The `Host`, the `Origin` or the header `everytick-run` is not allowed.
    Forbidden(String),
    /// The credential is missing or wrong. All reasons get the same answer, so that it reveals none of them.
    Unauthenticated,
    /// The caller sends too many requests. Nothing was changed; retry after this time.
    TooFast(String, Duration),
    /// The caller's role or scope does not include what the route needs.
    NotPermitted(Permission),
    /// The caller's grant does not include what the request asks for.
    NotAllowed(Invalid),
    /// The caller's tenant is suspended.
    TenantSuspended,
    /// A browser sends the request for a page of another site.
    CrossSite,
    NoSuchPath,
    NotFound(&'static str),
    /// As `NotFound`, with the name from the path.
    NotFoundNamed(String),
    /// A path segment can be neither a name nor an id, so no such resource exists.
    NotAName {
        field: &'static str,
        message: String,
    },
    WrongMethod,
    /// The request conflicts with the current state.
    Conflict(Vec<Invalid>),
    /// The tenant has reached a quota.
    QuotaReached(String),
    /// `If-Match` does not contain the current version.
    VersionMismatch(String),
    TooLarge {
        field: &'static str,
        bytes_max: usize,
    },
    WrongMediaType(String),
    TooSlow,
    /// The store failed, or did not confirm the commit. The message states which; the client may retry.
    Unavailable(String),
    /// This node is overloaded. Nothing was changed; retry after [`RETRY_AFTER`].
    Busy(String),
    /// The caller has too much in progress. Nothing was changed; retry after [`RETRY_AFTER`].
    TooMany(String),
    /// A row that the request needs cannot be decoded. Nothing was changed.
    Unreadable(String),
    /// A bug in the server. The log has the cause.
    Internal,
}

impl ApiError {
    pub(crate) fn malformed(field: &str, message: impl Into<String>) -> Self {
        Self::Malformed(vec![Invalid::new(field, message)])
    }
    pub(crate) fn conflict(field: &str, message: impl Into<String>) -> Self {
        Self::Conflict(vec![Invalid::new(field, message)])
    }

    /// The fence is not that of the current claim: the run was claimed again or has ended (I7).
    pub(crate) fn stale(fence: Fence) -> Self {
        let message = format!(
            "{fence} is not the fence of the current claim on this run; the run was claimed again or has ended"
        );
        Self::conflict("fence", message)
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Forbidden(_)
            | Self::NotPermitted(_)
            | Self::NotAllowed(_)
            | Self::TenantSuspended
            | Self::CrossSite => StatusCode::FORBIDDEN,
            Self::NoSuchPath | Self::NotFound(_) | Self::NotFoundNamed(_) | Self::NotAName { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict(_) | Self::QuotaReached(_) => StatusCode::CONFLICT,
            Self::VersionMismatch(_) => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Unavailable(_) | Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooMany(_) | Self::TooFast(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unreadable(_) | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// A stable word for programs: the end of the problem's `type`.
    const fn word(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Invalid(_) => "invalid",
            Self::Forbidden(_) | Self::NotPermitted(_) | Self::NotAllowed(_) => "forbidden",
            Self::Unauthenticated => "unauthenticated",
            Self::NoSuchPath => "no-such-path",
            Self::CrossSite => "cross-site",
            Self::TenantSuspended => "tenant-suspended",
            Self::NotFound(_) | Self::NotFoundNamed(_) | Self::NotAName { .. } => "not-found",
            Self::WrongMethod => "wrong-method",
            Self::Conflict(_) => "conflict",
            Self::QuotaReached(_) => "quota-reached",
            Self::VersionMismatch(_) => "version-mismatch",
            Self::TooLarge { .. } => "too-large",
            Self::WrongMediaType(_) => "wrong-media-type",
            Self::TooSlow => "too-slow",
            Self::Unavailable(_) => "unavailable",
            Self::Busy(_) => "busy",
            Self::TooMany(_) | Self::TooFast(..) => "rate-limited",
            Self::Unreadable(_) => "unreadable",
            Self::Internal => "internal",
        }
    }

    const fn title(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "The request cannot be read",
            Self::Invalid(_) => "The request is not valid",
            Self::Forbidden(_)
            | Self::NotPermitted(_)
            | Self::NotAllowed(_)
            | Self::TenantSuspended
            | Self::CrossSite => "The request is not allowed",
            Self::Unauthenticated => "The request needs a credential",
            Self::NoSuchPath => "No such path",
            Self::NotFound(_) | Self::NotFoundNamed(_) | Self::NotAName { .. } => "Not found",
            Self::WrongMethod => "The path does not support this method",
            Self::Conflict(_) | Self::QuotaReached(_) => "The request conflicts with the current state",
            Self::VersionMismatch(_) => "The version does not match",
            Self::TooLarge { .. } => "The request is too large",
            Self::WrongMediaType(_) => "The media type is not supported",
            Self::TooSlow => "The request took too long",
            Self::Unavailable(_) => "Temporarily unavailable",
            Self::Busy(_) => "The node is busy",
            Self::TooMany(_) | Self::TooFast(..) => "Too many requests at once",
            Self::Unreadable(_) => "A stored row cannot be decoded",
            Self::Internal => "Internal server error",
        }
    }

    /// How many errors are beyond [`ERRORS_MAX`] and therefore not listed.
    fn more_errors(&self) -> usize {
        match self {
            Self::Malformed(found) | Self::Invalid(found) | Self::Conflict(found) => {
                found.len().saturating_sub(ERRORS_MAX)
            }
            _ => 0,
        }
    }

    /// Each error with its field, if it has one. At most [`ERRORS_MAX`].
    pub(crate) fn errors(&self) -> Vec<FieldError> {
        match self {
            Self::Malformed(found) | Self::Invalid(found) | Self::Conflict(found) => {
                found.iter().take(ERRORS_MAX).map(FieldError::from).collect()
            }
            Self::NotAllowed(wrong) => vec![FieldError::from(wrong)],
            Self::NotPermitted(permission) => vec![FieldError::new("permission", permission.name())],
            Self::NotAName { field, message } => vec![FieldError::new(field, message)],
            Self::VersionMismatch(message) => vec![FieldError::new("If-Match", message)],
            Self::TooLarge { field, bytes_max } => vec![FieldError::new(field, &too_large(*bytes_max))],
            Self::WrongMediaType(message) => vec![FieldError::new("Content-Type", message)],
            Self::Forbidden(_)
            | Self::Unauthenticated
            | Self::TooFast(..)
            | Self::CrossSite
            | Self::TenantSuspended
            | Self::NoSuchPath
            | Self::NotFound(_)
            | Self::NotFoundNamed(_)
            | Self::WrongMethod
            | Self::QuotaReached(_)
            | Self::TooSlow
            | Self::Unavailable(_)
            | Self::Busy(_)
            | Self::TooMany(_)
            | Self::Unreadable(_)
            | Self::Internal => Vec::new(),
        }
    }

    /// The errors. If there are none, the detail as one error without a field.
    pub(crate) fn errors_or_detail(&self) -> Vec<FieldError> {
        let errors = self.errors();
        if errors.is_empty() { vec![FieldError::new("", &self.detail())] } else { errors }
    }

    fn detail(&self) -> String {
        match self {
            Self::Malformed(found) | Self::Invalid(found) | Self::Conflict(found) => {
                let listed = found.iter().take(ERRORS_MAX).map(ToString::to_string).collect::<Vec<_>>().join("; ");
                match self.more_errors() {
                    0 => listed,
                    more => format!("{listed}; and {more} more"),
                }
            }
            Self::Forbidden(message)
            | Self::QuotaReached(message)
            | Self::TooFast(message, _)
            | Self::VersionMismatch(message)
            | Self::WrongMediaType(message)
            | Self::Unavailable(message)
            | Self::Busy(message)
            | Self::TooMany(message)
            | Self::Unreadable(message)
            | Self::NotFoundNamed(message) => message.clone(),
            Self::NotAllowed(wrong) => wrong.to_string(),
            Self::NotPermitted(permission) => {
                format!(
                    "this needs the permission {:?}, which the caller's role or scope does not have",
                    permission.name()
                )
            }
            Self::Unauthenticated => {
                "send a valid token in the header Authorization: Bearer; `everytick login` stores one".to_owned()
            }
            Self::NoSuchPath => "no such path; /docs lists all paths of the API, which begin with /api/v1".to_owned(),
            Self::CrossSite => {
                "pages of other sites may not send requests here (Sec-Fetch-Site); open this server's own page"
                    .to_owned()
            }
            Self::TenantSuspended => {
                "the tenant is suspended; an operator of the installation can resume it".to_owned()
            }
            Self::NotFound(what) => format!("no such {what}"),
            Self::NotAName { message, .. } => message.clone(),
            Self::WrongMethod => "the Allow header lists the methods that this path supports".to_owned(),
            Self::TooLarge { field, bytes_max } => format!("{field}: {}", too_large(*bytes_max)),
            Self::TooSlow => "the request was not read and answered in time; it may have taken effect".to_owned(),
            Self::Internal => "the server's log has the cause".to_owned(),
        }
    }
}

fn too_large(bytes_max: usize) -> String {
    format!("is larger than {bytes_max} bytes, the limit; send a smaller one")
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let retry_after = match &self {
            Self::Busy(_) | Self::TooMany(_) => Some(RETRY_AFTER),
            Self::TooFast(_, wait) => Some(HeaderValue::from(wait.as_secs().saturating_add(1))),
            _ => None,
        };
        let missing = match self {
            Self::NotFound(what) => Some(Missing(what)),
            _ => None,
        };
        let problem = Problem {
            kind: format!("urn:everytick:problem:{}", self.word()),
            title: self.title().to_owned(),
            status: status.as_u16(),
            detail: self.detail(),
            errors: self.errors(),
            more_errors: self.more_errors(),
        };
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(missing) = missing {
            response.extensions_mut().insert(missing);
        }
        if let Some(after) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(what) => Self::NotFound(what),
            StoreError::VersionMismatch { .. } => Self::VersionMismatch(error.to_string()),
            StoreError::NameTaken(name) => Self::conflict("name", format!("{name:?} is taken by another job")),
            StoreError::TenantSuspended => Self::TenantSuspended,
            StoreError::BacklogFull(_)
            | StoreError::Rejected { .. }
            | StoreError::FlowEnded(_)
            | StoreError::BackfillEnded(_) => Self::conflict("", error.to_string()),
            StoreError::QuotaFull { .. } => Self::QuotaReached(error.to_string()),
            StoreError::Conflict(found) => Self::Conflict(vec![found]),
            StoreError::NotAllowed(found) => Self::NotAllowed(found),
            StoreError::InUse { .. } => Self::conflict("name", error.to_string()),
            StoreError::KeyReused => Self::Invalid(vec![Invalid::new(
                "Idempotency-Key",
                "was used for another request; use a new key for each request, and the same key only to repeat it",
            )]),
            StoreError::Invalid(found) => Self::Invalid(found),
            StoreError::Refused { doing, ref source } => {
                tracing::error!(doing, cause = %source, "the store rejected the data of a request");
                Self::Invalid(vec![Invalid::new("", error.to_string())])
            }
            StoreError::Unreadable { doing, ref source } => {
                tracing::error!(doing, cause = %source, "a request needs a row that cannot be decoded");
                Self::Unreadable(format!("{error}: {source}"))
            }
            StoreError::Failed { doing, ref source } => {
                tracing::error!(doing, cause = %source, "the store failed to execute a request");
                Self::Unavailable(format!("{error}; nothing was changed, retry"))
            }
            StoreError::Busy { .. } => Self::Busy(format!("{error}; nothing was changed, retry")),
            StoreError::Unsure { doing, ref source } => {
                tracing::error!(doing, cause = %source, "the store did not confirm a request: its outcome is unknown");
                Self::Unavailable(format!(
                    "{error}; read the current state before you retry, or retry with an Idempotency-Key"
                ))
            }
            StoreError::LeaseLost | StoreError::NodeNameTaken(_) | StoreError::Unusable(_) => {
                tracing::error!(%error, "the store cannot be used for a request");
                Self::Unavailable(error.to_string())
            }
        }
    }
}
