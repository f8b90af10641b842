//! Sessions in requests and answers.

use everytick_domain::{
    access::{NamedGrant, Role},
    ids::SessionId,
    time::DbTime,
};
use everytick_engine::types::SessionRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::token::queues;

/// The session of a browser. Its secret is only in the cookie.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    /// The actor of its changes in the audit trail.
    #[schema(example = "token:ci")]
    user: String,
    grants: Vec<SessionGrant>,
    /// The tenant that the user has chosen; `null`: that of the first grant.
    tenant: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    /// Written at most once a minute. A session ends after 8 h without a request.
    #[schema(value_type = String, format = DateTime)]
    last_used_at: DbTime,
    last_used_ip: Option<String>,
    /// A session with a token may end earlier, together with the token.
    #[schema(value_type = String, format = DateTime)]
    expires_at: DbTime,
    /// Whether it is the session of the caller.
    own: bool,
}

/// What a session may do in one tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionGrant {
    /// `null` for the role `instance`, which belongs to no tenant.
    #[schema(example = "default")]
    tenant: Option<String>,
    #[schema(value_type = String, example = "operator")]
    role: Role,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    read_only: bool,
}

impl Session {
    pub(crate) fn of(record: &SessionRecord, sees: impl Fn(&NamedGrant) -> bool, own: bool) -> Self {
        Self {
            id: record.id,
            user: record.user.clone(),
            grants: record.grants.iter().filter(|grant| sees(grant)).map(SessionGrant::from).collect(),
            tenant: record.tenant.clone(),
            created_at: record.created_at,
            last_used_at: record.seen_at,
            last_used_ip: record.ip.clone(),
            expires_at: record.expires_at,
            own,
        }
    }
}

impl From<&NamedGrant> for SessionGrant {
    fn from(grant: &NamedGrant) -> Self {
        Self {
            tenant: grant.tenant.clone(),
            role: grant.role,
            queues: queues(&grant.scope),
            job_prefix: grant.scope.job_prefix.clone(),
            read_only: grant.scope.read_only,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    pub(crate) items: Vec<Session>,
    /// Cursor of the next page; `null` on the last page.
    pub(crate) next_cursor: Option<String>,
}

/// The tenant in which the session acts from now on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantChoice {
    /// The name of a tenant for which the session has a grant.
    #[schema(example = "default")]
    pub(crate) tenant: String,
}
