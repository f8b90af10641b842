//! The transactions about sessions of browsers, with their parameters and results.

use async_trait::async_trait;
use everytick_domain::{
    access::{NamedGrant, SessionHash, TokenHash, session_is_live},
    ids::{SessionId, TenantId},
    time::DbTime,
};

use crate::{Actor, Page, Result};

/// A session as it is stored. Its secret is known only to the browser.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRecord {
    pub hash: SessionHash,
    pub id: SessionId,
    /// The actor of the session's changes, such as `token:ci` or `user:ann@example.org`.
    pub user: String,
    /// The token of the login. The session is valid only as long as this token.
    pub token: Option<TokenHash>,
    pub grants: Vec<NamedGrant>,
    /// The tenant that the user has chosen.
    pub tenant: Option<String>,
    pub created_at: DbTime,
    /// The last use. Written at most once in [`crate::USE_NOTED_EVERY`].
    pub seen_at: DbTime,
    pub expires_at: DbTime,
    /// The address of the last use.
    pub ip: Option<String>,
}

impl SessionRecord {
    /// Whether neither limit of time is reached. A session with a token also needs the token.
    #[must_use]
    pub fn is_live(&self, now: DbTime) -> bool {
        session_is_live(self.seen_at, self.expires_at, now)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSession {
    pub hash: SessionHash,
    pub id: SessionId,
    pub user: String,
    pub token: Option<TokenHash>,
    pub grants: Vec<NamedGrant>,
    pub tenant: Option<String>,
    pub ip: Option<String>,
    /// The session that the browser had before. It ends.
    pub replaces: Option<SessionHash>,
}

/// Why a session ends. Written as the action of the audit row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// Its user ended it.
    Logout,
    /// An admin ended it.
    Revoked,
}

/// The transactions about sessions. Each change notifies all nodes. Logins and ends write an audit row into the trail of
/// `tenant`.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Creates a session. Beyond [`everytick_domain::access::SESSIONS_PER_USER_MAX`], the session of the user that was
    /// used least recently ends.
    async fn create_session(&self, tenant: TenantId, actor: &Actor, session: NewSession) -> Result<SessionRecord>;
    /// The sessions with these hashes, valid or not, and the time of the database.
    async fn find_sessions(&self, hashes: &[SessionHash]) -> Result<(Vec<SessionRecord>, DbTime)>;
    /// A session whose limits of time are not reached.
    async fn get_session(&self, id: SessionId) -> Result<SessionRecord>;
    /// The same for all, in the order of their logins, after the given one.
    async fn list_sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Page<SessionRecord, SessionId>>;
    async fn end_session(
        &self,
        tenant: TenantId,
        actor: &Actor,
        id: SessionId,
        end: SessionEnd,
    ) -> Result<SessionRecord>;
    /// Stores the tenant in which the user acts from now on.
    async fn choose_tenant(&self, id: SessionId, tenant: Option<&str>) -> Result<SessionRecord>;
    /// Stores when and from where a session was used, unless that was stored within [`crate::USE_NOTED_EVERY`].
    async fn note_session_used(&self, id: SessionId, ip: &str) -> Result<()>;
    /// Deletes sessions that have reached a limit of time; at most `limit`. Returns how many.
    async fn prune_sessions(&self, limit: usize) -> Result<u64>;
}
