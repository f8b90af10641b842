//! Sessions of browsers. Changes lock the settings first, as changes of tokens do, so that two logins at once cannot exceed
//! the limit of a user.

use async_trait::async_trait;
use everytick_domain::{
    access::{SESSION_IDLE_MAX, SESSION_LIFETIME, SESSIONS_PER_USER_MAX, SessionHash, TokenHash},
    ids::{SessionId, TenantId},
    time::DbTime,
};

use super::{Tx, audit_one};
use crate::{Actor, NewSession, Result, SessionEnd, SessionRecord, StoreError, USE_NOTED_EVERY};

/// The verbs of sessions.
#[async_trait]
pub trait SessionTx: Tx {
    /// The sessions with these hashes. Leaves out what cannot be decoded.
    async fn sessions_by_hash(&mut self, hashes: &[SessionHash]) -> Result<Vec<SessionRecord>>;
    async fn session_by_id(&mut self, id: SessionId) -> Result<Option<SessionRecord>>;
    /// The sessions of a user who logged in with this token, least recently used first.
    async fn user_sessions(&mut self, user: &str, token: Option<TokenHash>) -> Result<Vec<SessionId>>;
    async fn insert_session(&mut self, session: &SessionRecord) -> Result<()>;
    async fn delete_session(&mut self, id: SessionId) -> Result<()>;
    async fn set_session_tenant(&mut self, id: SessionId, tenant: Option<&str>) -> Result<()>;
    /// Stores a use, unless one was stored after this time.
    async fn touch_session(&mut self, id: SessionId, ip: &str, unless_after: DbTime) -> Result<()>;
    /// Deletes sessions that expired until `expired`, or were last used until `idle_since`.
    async fn prune_sessions(&mut self, expired: DbTime, idle_since: DbTime, limit: usize) -> Result<u64>;
}

pub async fn create_session<T: SessionTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    new: NewSession,
) -> Result<SessionRecord> {
    tx.lock_access().await?;
    let now = tx.read_clock().await?;
    let replaced: Vec<SessionHash> = new.replaces.into_iter().collect();
    let mut ended: Vec<SessionId> =
        tx.sessions_by_hash(&replaced).await?.into_iter().map(|session| session.id).collect();
    let own = tx.user_sessions(&new.user, new.token).await?;
    let others: Vec<SessionId> = own.into_iter().filter(|id| !ended.contains(id)).collect();
    // The new one counts too.
    let beyond = (others.len() + 1).saturating_sub(SESSIONS_PER_USER_MAX);
    ended.extend(others.into_iter().take(beyond));
    for id in &ended {
        tx.delete_session(*id).await?;
    }
    let NewSession { hash, id, user, token, grants, tenant: chosen, ip, replaces: _ } = new;
    let expires_at = now.plus(SESSION_LIFETIME);
    let session =
        SessionRecord { hash, id, user, token, grants, tenant: chosen, created_at: now, seen_at: now, expires_at, ip };
    tx.insert_session(&session).await?;
    let detail = serde_json::json!({ "user": session.user, "grants": session.grants, "ended": ended });
    audit_one(tx, tenant, actor, "login", subject(id), detail.to_string()).await?;
    tx.notify_access().await?;
    Ok(session)
}

fn subject(id: SessionId) -> String {
    format!("session/{id}")
}

pub async fn find_sessions<T: SessionTx + ?Sized>(
    tx: &mut T,
    hashes: &[SessionHash],
) -> Result<(Vec<SessionRecord>, DbTime)> {
    let found = tx.sessions_by_hash(hashes).await?;
    Ok((found, tx.read_clock().await?))
}

pub async fn get_session<T: SessionTx + ?Sized>(tx: &mut T, id: SessionId) -> Result<SessionRecord> {
    let found = tx.session_by_id(id).await?;
    let now = tx.read_clock().await?;
    found.filter(|session| session.is_live(now)).ok_or(StoreError::NotFound("session"))
}

pub async fn end_session<T: SessionTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    id: SessionId,
    end: SessionEnd,
) -> Result<SessionRecord> {
    tx.lock_access().await?;
    let session = get_session(tx, id).await?;
    tx.delete_session(id).await?;
    let action = match end {
        SessionEnd::Logout => "logout",
        SessionEnd::Revoked => "end_session",
    };
    let detail = serde_json::json!({ "user": session.user }).to_string();
    audit_one(tx, tenant, actor, action, subject(id), detail).await?;
    tx.notify_access().await?;
    Ok(session)
}

pub async fn choose_tenant<T: SessionTx + ?Sized>(
    tx: &mut T,
    id: SessionId,
    tenant: Option<&str>,
) -> Result<SessionRecord> {
    tx.lock_access().await?;
    let session = get_session(tx, id).await?;
    tx.set_session_tenant(id, tenant).await?;
    tx.notify_access().await?;
    Ok(SessionRecord { tenant: tenant.map(str::to_owned), ..session })
}

pub async fn note_session_used<T: SessionTx + ?Sized>(tx: &mut T, id: SessionId, ip: &str) -> Result<()> {
    let now = tx.read_clock().await?;
    tx.touch_session(id, ip, now.minus(USE_NOTED_EVERY)).await
}

pub async fn prune_sessions<T: SessionTx + ?Sized>(tx: &mut T, limit: usize) -> Result<u64> {
    let now = tx.read_clock().await?;
    tx.prune_sessions(now, now.minus(SESSION_IDLE_MAX), limit).await
}
