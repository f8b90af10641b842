//! Sessions of browsers. The transactions are in `crate::tx::session`.

use async_trait::async_trait;
use everytick_domain::{
    access::{SESSION_IDLE_MAX, SessionHash, TokenHash},
    ids::{SessionId, TenantId},
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, Failed, rows};
use crate::tx::{Tx as _, in_read, in_tx, session, session::SessionTx};
use crate::{Actor, NewSession, Page, Result, SessionEnd, SessionRecord, SessionStore};

#[async_trait]
impl SessionStore for DbStore {
    async fn create_session(&self, tenant: TenantId, actor: &Actor, new: NewSession) -> Result<SessionRecord> {
        in_tx!(self, "create a session", tx => session::create_session(tx, tenant, actor, new))
    }
    async fn find_sessions(&self, hashes: &[SessionHash]) -> Result<(Vec<SessionRecord>, DbTime)> {
        in_read!(self, "look up sessions", tx => session::find_sessions(tx, hashes))
    }
    async fn get_session(&self, id: SessionId) -> Result<SessionRecord> {
        in_read!(self, "read the session", tx => session::get_session(tx, id))
    }
    async fn list_sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Page<SessionRecord, SessionId>> {
        self.reads(list(self, after, limit)).await
    }
    async fn end_session(
        &self,
        tenant: TenantId,
        actor: &Actor,
        id: SessionId,
        end: SessionEnd,
    ) -> Result<SessionRecord> {
        in_tx!(self, "end the session", tx => session::end_session(tx, tenant, actor, id, end))
    }
    async fn choose_tenant(&self, id: SessionId, tenant: Option<&str>) -> Result<SessionRecord> {
        in_tx!(self, "choose a tenant", tx => session::choose_tenant(tx, id, tenant))
    }
    async fn note_session_used(&self, id: SessionId, ip: &str) -> Result<()> {
        in_tx!(self, "note the use of a session", tx => session::note_session_used(tx, id, ip))
    }
    async fn prune_sessions(&self, limit: usize) -> Result<u64> {
        in_tx!(self, "prune sessions", tx => session::prune_sessions(tx, limit))
    }
}

async fn list(store: &DbStore, after: Option<SessionId>, limit: usize) -> Result<Page<SessionRecord, SessionId>> {
    let mut tx = store.read("list sessions").await?;
    let now = tx.read_clock().await?;
    let after = after.map_or(Uuid::nil(), SessionId::uuid);
    let (idle, most) = (now.minus(SESSION_IDLE_MAX).millis(), rows::limit(limit.saturating_add(1)));
    let found = tx.fetch_all(query!("sessions/list_sessions", after, now.millis(), idle, most)).await?;
    let ids = found.iter().map(|row| row.try_get("id").map(SessionId::from_uuid));
    let ids = ids.collect::<sqlx::Result<Vec<_>>>().failed(tx.doing)?;
    // Set even if the last row cannot be decoded.
    let next = if found.len() > limit { ids.get(limit.saturating_sub(1)).copied() } else { None };
    let shown = found.get(..limit.min(found.len())).unwrap_or_default();
    Ok(Page { items: tx.unreadable.each("sessions", shown, decode), next })
}

fn decode(row: &DbRow) -> rows::Decoded<SessionRecord> {
    let bytes = |column: &'static str, found: Vec<u8>| -> rows::Decoded<[u8; 32]> {
        found.try_into().map_err(|_| rows::wrong(column, "it does not have 32 bytes"))
    };
    let grants: String = row.try_get("grants")?;
    let token = row.try_get::<Option<Vec<u8>>, _>("token")?.map(|found| bytes("token", found)).transpose()?;
    Ok(SessionRecord {
        hash: SessionHash::from_bytes(bytes("hash", row.try_get("hash")?)?),
        id: SessionId::from_uuid(row.try_get("id")?),
        user: row.try_get("user_name")?,
        token: token.map(TokenHash::from_bytes),
        grants: serde_json::from_str(&grants).map_err(|error| rows::wrong("grants", error))?,
        tenant: row.try_get("tenant")?,
        created_at: rows::at(row, "created_at")?,
        seen_at: rows::at(row, "seen_at")?,
        expires_at: rows::at(row, "expires_at")?,
        ip: row.try_get("ip")?,
    })
}

#[async_trait]
impl SessionTx for DbTx {
    async fn sessions_by_hash(&mut self, hashes: &[SessionHash]) -> Result<Vec<SessionRecord>> {
        let hashes: Vec<&[u8; 32]> = hashes.iter().map(SessionHash::as_bytes).collect();
        let found = self.fetch_all(query!("sessions/sessions_by_hash", rows::hashes(&hashes))).await?;
        Ok(self.unreadable.each("sessions", &found, decode))
    }
    async fn session_by_id(&mut self, id: SessionId) -> Result<Option<SessionRecord>> {
        let found = self.fetch_optional(query!("sessions/session_by_id", id.uuid())).await?;
        found.as_ref().map(decode).transpose().failed(self.doing)
    }
    async fn user_sessions(&mut self, user: &str, token: Option<TokenHash>) -> Result<Vec<SessionId>> {
        let token = token.as_ref().map(|hash| hash.as_bytes().as_slice());
        let found: Vec<(Uuid,)> = self.fetch_all_as(query!("sessions/user_sessions", rows::text(user), token)).await?;
        Ok(found.into_iter().map(|(id,)| SessionId::from_uuid(id)).collect())
    }
    async fn insert_session(&mut self, session: &SessionRecord) -> Result<()> {
        let insert = query!(
            "sessions/insert_session",
            session.hash.as_bytes().as_slice(),
            session.id.uuid(),
            rows::text(&session.user),
            session.token.as_ref().map(|hash| hash.as_bytes().as_slice()),
            serde_json::to_string(&session.grants).unwrap_or_default(),
            rows::text_of(session.tenant.as_ref()),
            session.created_at.millis(),
            session.expires_at.millis(),
            session.ip.as_deref(),
        );
        self.execute_or_refuse(insert).await.map(drop)
    }
    async fn delete_session(&mut self, id: SessionId) -> Result<()> {
        self.execute(query!("sessions/delete_session", id.uuid())).await.map(drop)
    }
    async fn set_session_tenant(&mut self, id: SessionId, tenant: Option<&str>) -> Result<()> {
        self.execute(query!("sessions/choose_tenant", id.uuid(), tenant.map(rows::text))).await.map(drop)
    }
    async fn touch_session(&mut self, id: SessionId, ip: &str, unless_after: DbTime) -> Result<()> {
        let touch = query!("sessions/touch_session", id.uuid(), self.now.millis(), ip, unless_after.millis());
        self.execute(touch).await.map(drop)
    }
    async fn prune_sessions(&mut self, expired: DbTime, idle_since: DbTime, limit: usize) -> Result<u64> {
        let prune = query!("sessions/prune_sessions", expired.millis(), idle_since.millis(), rows::limit(limit));
        self.execute(prune).await
    }
}
