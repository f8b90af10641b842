//! Sessions of browsers on maps.

use std::ops::Bound;

use async_trait::async_trait;
use everytick_domain::{
    access::{SessionHash, TokenHash},
    ids::{SessionId, TenantId},
    time::DbTime,
};
use everytick_store::{
    Actor, NewSession, Page, Result, SessionEnd, SessionRecord, SessionStore,
    tx::session::{self, SessionTx},
};

use super::{
    Point, SimStore,
    call::{call, script},
    tx::SimTx,
};

#[async_trait]
impl SessionStore for SimStore {
    async fn create_session(&self, tenant: TenantId, actor: &Actor, new: NewSession) -> Result<SessionRecord> {
        script!(self, Ask, "create a session", [actor], |tx| session::create_session(tx, tenant, &actor, new))
    }
    async fn find_sessions(&self, hashes: &[SessionHash]) -> Result<(Vec<SessionRecord>, DbTime)> {
        script!(self, Read, "look up sessions", [hashes], |tx| session::find_sessions(tx, &hashes))
    }
    async fn get_session(&self, id: SessionId) -> Result<SessionRecord> {
        script!(self, Read, "read the session", [], |tx| session::get_session(tx, id))
    }
    async fn list_sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Page<SessionRecord, SessionId>> {
        call!(self, Read, [], |db, now| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let all = db.sessions.range((from, Bound::Unbounded)).map(|(_, session)| session);
            let live = all.filter(|session| session.is_live(now));
            Ok(Page::cut(live.take(limit.saturating_add(1)).cloned().collect(), limit, |session| session.id))
        })
    }
    async fn end_session(
        &self,
        tenant: TenantId,
        actor: &Actor,
        id: SessionId,
        end: SessionEnd,
    ) -> Result<SessionRecord> {
        script!(self, Ask, "end the session", [actor], |tx| session::end_session(tx, tenant, &actor, id, end))
    }
    async fn choose_tenant(&self, id: SessionId, tenant: Option<&str>) -> Result<SessionRecord> {
        let tenant = tenant.map(str::to_owned);
        script!(self, Ask, "choose a tenant", [], |tx| session::choose_tenant(tx, id, tenant.as_deref()))
    }
    async fn note_session_used(&self, id: SessionId, ip: &str) -> Result<()> {
        script!(self, Ask, "note the use of a session", [ip], |tx| session::note_session_used(tx, id, &ip))
    }
    async fn prune_sessions(&self, limit: usize) -> Result<u64> {
        script!(self, Prune, "prune sessions", [], |tx| session::prune_sessions(tx, limit))
    }
}

#[async_trait]
impl SessionTx for SimTx<'_> {
    async fn sessions_by_hash(&mut self, hashes: &[SessionHash]) -> Result<Vec<SessionRecord>> {
        Ok(self.db.sessions.values().filter(|session| hashes.contains(&session.hash)).cloned().collect())
    }
    async fn session_by_id(&mut self, id: SessionId) -> Result<Option<SessionRecord>> {
        Ok(self.db.sessions.get(&id).cloned())
    }
    async fn user_sessions(&mut self, user: &str, token: Option<TokenHash>) -> Result<Vec<SessionId>> {
        let own = self.db.sessions.values().filter(|session| session.user == user && session.token == token);
        let mut own: Vec<_> = own.map(|session| (session.seen_at, session.id)).collect();
        own.sort_unstable();
        Ok(own.into_iter().map(|(_, id)| id).collect())
    }
    async fn insert_session(&mut self, session: &SessionRecord) -> Result<()> {
        self.db.sessions.insert(session.id, session.clone());
        Ok(())
    }
    async fn delete_session(&mut self, id: SessionId) -> Result<()> {
        self.db.sessions.remove(&id);
        Ok(())
    }
    async fn set_session_tenant(&mut self, id: SessionId, tenant: Option<&str>) -> Result<()> {
        if let Some(session) = self.db.sessions.get_mut(&id) {
            session.tenant = tenant.map(str::to_owned);
        }
        Ok(())
    }
    async fn touch_session(&mut self, id: SessionId, ip: &str, unless_after: DbTime) -> Result<()> {
        let at = self.at;
        if let Some(session) = self.db.sessions.get_mut(&id).filter(|session| session.seen_at <= unless_after) {
            (session.seen_at, session.ip) = (at, Some(ip.to_owned()));
        }
        Ok(())
    }
    async fn prune_sessions(&mut self, expired: DbTime, idle_since: DbTime, limit: usize) -> Result<u64> {
        let ended = |session: &&SessionRecord| session.expires_at <= expired || session.seen_at <= idle_since;
        let gone: Vec<SessionId> =
            self.db.sessions.values().filter(ended).take(limit).map(|session| session.id).collect();
        gone.iter().for_each(|id| drop(self.db.sessions.remove(id)));
        Ok(gone.len() as u64)
    }
}
