//! Sessions of browsers: logs in, looks up, chooses a tenant, ends.

use std::sync::Arc;

use everytick_domain::{
    access::{NamedGrant, SessionHash, SessionSecret, TokenHash},
    ids::{SessionId, TenantId},
    time::DbTime,
};
use everytick_store::{Actor, NewSession, Page, Result, SessionEnd, SessionRecord};

use super::{Access, Lookup};

/// The valid session of a request. A session with a token also needs the token.
#[derive(Clone, Debug)]
pub struct Session {
    pub record: Arc<SessionRecord>,
    /// A lower bound of the time on the database clock.
    pub now: DbTime,
}

/// Who logs in, and what the session grants.
#[derive(Clone, Debug)]
pub struct Login {
    pub user: String,
    /// The token with which the user logs in.
    pub token: Option<TokenHash>,
    pub grants: Vec<NamedGrant>,
    pub tenant: Option<String>,
    pub ip: Option<String>,
    /// The session that the browser had before.
    pub replaces: Option<SessionHash>,
}

impl Access {
    /// Creates a session. Returns it with its secret, which is stored nowhere.
    pub async fn log_in(
        &self,
        tenant: TenantId,
        actor: &Actor,
        login: Login,
    ) -> Result<(SessionSecret, SessionRecord)> {
        let (mut secret, mut id) = ([0; 32], [0; 10]);
        self.0.entropy.fill(&mut secret);
        self.0.entropy.fill(&mut id);
        let (secret, id) = (SessionSecret::from_random(secret), SessionId::new(self.0.store.now().await?, id));
        let Login { user, token, grants, tenant: chosen, ip, replaces } = login;
        let new = NewSession { hash: secret.hash(), id, user, token, grants, tenant: chosen, ip, replaces };
        let made = self.0.store.create_session(tenant, actor, new).await;
        self.0.hints.access_changed();
        Ok((secret, made?))
    }

    #[must_use]
    pub fn knows_session(&self, hash: &SessionHash) -> bool {
        self.0.sessions.knows(hash)
    }

    /// The valid session with this hash.
    pub async fn find_session(&self, hash: &SessionHash, lookup: Lookup) -> Result<Option<Session>> {
        let found = self.0.sessions.find(hash, lookup).await?;
        Ok(found.map(|found| Session { record: found.record, now: found.now }))
    }

    /// Whether a session and its token are still valid, for a streamed response; see [`Access::is_valid`].
    pub async fn is_session_valid(&self, hash: &SessionHash, token: Option<&TokenHash>) -> Result<bool> {
        Ok(self.0.sessions.is_valid(hash).await?
            && match token {
                Some(token) => self.is_valid(token).await?,
                None => true,
            })
    }

    /// Stores when and from where a session was used, at most once a minute. The request does not wait for it.
    pub fn note_session_use(&self, hash: &SessionHash, ip: String) {
        let Some(session) = self.0.sessions.use_to_note(hash) else { return };
        let store = self.0.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.note_session_used(session.id, &ip).await {
                tracing::debug!(%error, session = %session.id, "could not store the use of a session");
            }
        });
    }

    pub async fn end_session(
        &self,
        tenant: TenantId,
        actor: &Actor,
        id: SessionId,
        end: SessionEnd,
    ) -> Result<SessionRecord> {
        let ended = self.0.store.end_session(tenant, actor, id, end).await;
        self.0.hints.access_changed();
        ended
    }

    /// The tenant in which the user of a session acts from now on.
    pub async fn choose_tenant(&self, id: SessionId, tenant: Option<&str>) -> Result<SessionRecord> {
        let chosen = self.0.store.choose_tenant(id, tenant).await;
        self.0.hints.access_changed();
        chosen
    }

    pub async fn get_session(&self, id: SessionId) -> Result<SessionRecord> {
        self.0.store.get_session(id).await
    }

    pub async fn list_sessions(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Page<SessionRecord, SessionId>> {
        self.0.store.list_sessions(after, limit).await
    }
}
