//! Tokens and settings on maps.

use std::ops::Bound;

use async_trait::async_trait;
use everytick_domain::{
    access::{Rotations, RunKey, TokenHash},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_store::{
    Actor, AuditResult, Creator, NewToken, Page, Result, TokenKey, TokenOwner, TokenRecord, TokenStore,
    tx::token::{self, TokenTx},
};

use super::{
    Point, SimStore,
    call::{call, script},
    tx::SimTx,
};

#[async_trait]
impl TokenStore for SimStore {
    async fn create_token(&self, actor: &Actor, creator: &Creator, new: NewToken) -> Result<TokenRecord> {
        script!(self, Ask, "create a token", [actor, creator], |tx| token::create_token(tx, &actor, &creator, new))
    }
    async fn create_node_tokens(&self, actor: &Actor, tokens: Vec<NewToken>) -> Result<bool> {
        script!(self, Ask, "create tokens", [actor], |tx| token::create_node_tokens(tx, &actor, tokens))
    }
    async fn find_tokens(&self, hashes: &[TokenHash]) -> Result<(Vec<TokenRecord>, DbTime)> {
        script!(self, Read, "look up tokens", [hashes], |tx| token::find_tokens(tx, &hashes))
    }
    async fn get_token(&self, owner: TokenOwner, id: TokenId) -> Result<TokenRecord> {
        script!(self, Read, "read the token", [], |tx| token::get_token(tx, owner, id))
    }
    async fn list_tokens(
        &self,
        owner: TokenOwner,
        after: Option<TokenId>,
        limit: usize,
    ) -> Result<Page<TokenRecord, TokenId>> {
        call!(self, Read, [], |db, _| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let own = db.tokens.range((from, Bound::Unbounded)).map(|(_, token)| token);
            let own = own.filter(|token| token.grant.tenant == owner && token.revoked_at.is_none());
            Ok(Page::cut(own.take(limit.saturating_add(1)).cloned().collect(), limit, |token| token.id))
        })
    }
    async fn revoke_token(&self, actor: &Actor, owner: TokenOwner, id: TokenId) -> Result<Vec<TokenRecord>> {
        script!(self, Ask, "revoke the token", [actor], |tx| token::revoke_token(tx, &actor, owner, id))
    }
    async fn rotate_token(
        &self,
        actor: &Actor,
        owner: TokenOwner,
        id: TokenId,
        new: TokenKey,
        overlap: Span,
    ) -> Result<TokenRecord> {
        script!(self, Ask, "rotate the token", [actor], |tx| token::rotate_token(tx, &actor, owner, id, new, overlap))
    }
    async fn count_expiring(&self, within: Span) -> Result<u64> {
        script!(self, Read, "count tokens", [], |tx| token::count_expiring(tx, within))
    }
    async fn prune_tokens(&self, before: DbTime, limit: usize) -> Result<u64> {
        script!(self, Prune, "prune tokens", [], |tx| token::prune_tokens(tx, before, limit))
    }
    async fn note_token_used(&self, id: TokenId, ip: &str) -> Result<()> {
        script!(self, Ask, "note the use of a token", [ip], |tx| token::note_token_used(tx, id, &ip))
    }
    async fn auth_required(&self) -> Result<bool> {
        script!(self, Read, "read the settings", [], |tx| token::auth_required(tx))
    }
    async fn require_auth(&self, actor: &Actor) -> Result<()> {
        script!(self, Ask, "require a credential", [actor], |tx| token::require_auth(tx, &actor))
    }
    async fn reset_access(&self, actor: &Actor) -> Result<()> {
        script!(self, Ask, "reset access", [actor], |tx| token::reset_access(tx, &actor))
    }
    async fn run_key(&self, fresh: RunKey) -> Result<RunKey> {
        script!(self, Ask, "read the key of run tokens", [], |tx| token::run_key(tx, fresh))
    }
    async fn note_refused(
        &self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: &str,
        result: AuditResult,
    ) -> Result<()> {
        script!(self, Ask, "note a refused request", [actor, action, subject, detail], |tx| token::note_refused(
            tx,
            tenant,
            &actor,
            &action,
            (subject.as_str(), detail.as_str()),
            result
        ))
    }
}

impl SimTx<'_> {
    fn change(&mut self, id: TokenId, change: impl FnOnce(&mut TokenRecord)) {
        if let Some(token) = self.db.tokens.get_mut(&id) {
            change(token);
        }
    }
}

#[async_trait]
impl TokenTx for SimTx<'_> {
    async fn setting(&mut self, name: &str) -> Result<Option<String>> {
        Ok(self.db.settings.get(name).cloned())
    }
    async fn set_setting(&mut self, name: &str, value: &str) -> Result<()> {
        self.db.settings.insert(name.to_owned(), value.to_owned());
        Ok(())
    }
    async fn tokens_by_hash(&mut self, hashes: &[TokenHash]) -> Result<Vec<TokenRecord>> {
        Ok(self.db.tokens.values().filter(|token| hashes.contains(&token.hash)).cloned().collect())
    }
    async fn token_by_id(&mut self, id: TokenId) -> Result<Option<TokenRecord>> {
        Ok(self.db.tokens.get(&id).cloned())
    }
    async fn live_tokens(&mut self, owner: TokenOwner) -> Result<Vec<(TokenId, String)>> {
        let own = self.db.tokens.values().filter(|token| token.grant.tenant == owner && token.is_live(self.at));
        Ok(own.map(|token| (token.id, token.name.clone())).collect())
    }
    async fn rotations(&mut self, owner: TokenOwner) -> Result<Rotations> {
        let own = self.db.tokens.values().filter(|token| token.grant.tenant == owner);
        Ok(own.filter_map(|token| Some((token.id, token.rotated_from?))).collect())
    }
    async fn count_expiring(&mut self, until: DbTime) -> Result<u64> {
        let all = || self.db.tokens.values();
        let expires = |token: &&TokenRecord| token.is_live(self.at) && token.expires_at.is_some_and(|at| at <= until);
        let is_rotated = |token: &TokenRecord| all().any(|other| other.rotated_from == Some(token.id));
        Ok(all().filter(expires).filter(|token| !is_rotated(token)).count() as u64)
    }
    async fn insert_token(&mut self, token: &TokenRecord) -> Result<()> {
        self.db.tokens.insert(token.id, token.clone());
        Ok(())
    }
    async fn end_token(&mut self, id: TokenId) -> Result<()> {
        let at = self.at;
        self.change(id, |token| token.revoked_at = token.revoked_at.or(Some(at)));
        Ok(())
    }
    async fn expire_token(&mut self, id: TokenId, at: DbTime) -> Result<()> {
        self.change(id, |token| token.expires_at = Some(token.expires_at.map_or(at, |now| now.min(at))));
        Ok(())
    }
    async fn touch_token(&mut self, id: TokenId, ip: &str, unless_after: DbTime) -> Result<()> {
        let at = self.at;
        self.change(id, |token| {
            if token.last_used_at.is_none_or(|used| used <= unless_after) {
                (token.last_used_at, token.last_used_ip) = (Some(at), Some(ip.to_owned()));
            }
        });
        Ok(())
    }
    async fn prune_tokens(&mut self, before: DbTime, limit: usize) -> Result<u64> {
        let ended = |at: Option<DbTime>| at.is_some_and(|at| at < before);
        let gone = self.db.tokens.values().filter(|token| ended(token.revoked_at) || ended(token.expires_at));
        let gone: Vec<TokenId> = gone.take(limit).map(|token| token.id).collect();
        gone.iter().for_each(|id| drop(self.db.tokens.remove(id)));
        Ok(gone.len() as u64)
    }
    async fn audit_refused(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        row: (String, String),
        result: AuditResult,
    ) -> Result<()> {
        self.db.note_result(tenant, actor, action, row, result, self.at);
        Ok(())
    }
}
