//! Tokens and settings. The transactions are in `crate::tx::token`.

use async_trait::async_trait;
use everytick_domain::{
    access::{Grant, Rotations, RunKey, TokenHash},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, Failed, rows, verbs};
use crate::tx::{in_read, in_tx, token, token::TokenTx};
use crate::{Actor, AuditResult, Creator, NewToken, Page, Result, TokenKey, TokenOwner, TokenRecord, TokenStore};

#[async_trait]
impl TokenStore for DbStore {
    async fn create_token(&self, actor: &Actor, creator: &Creator, new: NewToken) -> Result<TokenRecord> {
        in_tx!(self, "create a token", tx => token::create_token(tx, actor, creator, new))
    }
    async fn create_node_tokens(&self, actor: &Actor, tokens: Vec<NewToken>) -> Result<bool> {
        in_tx!(self, "create the tokens of a node", tx => token::create_node_tokens(tx, actor, tokens))
    }
    async fn find_tokens(&self, hashes: &[TokenHash]) -> Result<(Vec<TokenRecord>, DbTime)> {
        in_read!(self, "look up tokens", tx => token::find_tokens(tx, hashes))
    }
    async fn get_token(&self, owner: TokenOwner, id: TokenId) -> Result<TokenRecord> {
        in_read!(self.of(owner), "read the token", tx => token::get_token(tx, owner, id))
    }
    async fn list_tokens(
        &self,
        owner: TokenOwner,
        after: Option<TokenId>,
        limit: usize,
    ) -> Result<Page<TokenRecord, TokenId>> {
        self.reads(list(self, owner, after, limit)).await
    }
    async fn revoke_token(&self, actor: &Actor, owner: TokenOwner, id: TokenId) -> Result<Vec<TokenRecord>> {
        in_tx!(self, "revoke the token", tx => token::revoke_token(tx, actor, owner, id))
    }
    async fn rotate_token(
        &self,
        actor: &Actor,
        owner: TokenOwner,
        id: TokenId,
        new: TokenKey,
        overlap: Span,
    ) -> Result<TokenRecord> {
        in_tx!(self, "rotate the token", tx => token::rotate_token(tx, actor, owner, id, new, overlap))
    }
    async fn count_expiring(&self, within: Span) -> Result<u64> {
        in_read!(self, "count tokens", tx => token::count_expiring(tx, within))
    }
    async fn prune_tokens(&self, before: DbTime, limit: usize) -> Result<u64> {
        in_tx!(self, "prune tokens", tx => token::prune_tokens(tx, before, limit))
    }
    async fn note_token_used(&self, id: TokenId, ip: &str) -> Result<()> {
        in_tx!(self, "note the use of a token", tx => token::note_token_used(tx, id, ip))
    }
    async fn auth_required(&self) -> Result<bool> {
        in_read!(self, "read the settings", tx => token::auth_required(tx))
    }
    async fn reset_access(&self, actor: &Actor) -> Result<()> {
        in_tx!(self, "reset access", tx => token::reset_access(tx, actor))
    }
    async fn run_key(&self, fresh: RunKey) -> Result<RunKey> {
        in_tx!(self, "read the key of run tokens", tx => token::run_key(tx, fresh))
    }
    async fn note_denied(
        &self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: &str,
    ) -> Result<()> {
        in_tx!(self.of(tenant), "note a denied request", tx => token::note_denied(tx, tenant, actor, action, subject, detail))
    }
}

/// The tenant in the form of the index: 0 for tokens without a tenant.
fn owner_key(owner: TokenOwner) -> i32 {
    owner.map_or(0, TenantId::raw)
}

async fn list(
    store: &DbStore,
    owner: TokenOwner,
    after: Option<TokenId>,
    limit: usize,
) -> Result<Page<TokenRecord, TokenId>> {
    // Not as the tenant: under row-level security, PostgreSQL would not use the index, whose expression could fail.
    let mut tx = store.read("list tokens").await?;
    let after = after.map_or(Uuid::nil(), TokenId::uuid);
    let most = rows::limit(limit.saturating_add(1));
    let found = tx.fetch_all(query!("tokens/list_tokens", owner_key(owner), after, most)).await?;
    let ids = found.iter().map(|row| row.try_get("id").map(TokenId::from_uuid));
    let ids = ids.collect::<sqlx::Result<Vec<_>>>().failed(tx.doing)?;
    // The position of the next page, even if the last row cannot be decoded.
    let next = if found.len() > limit { ids.get(limit.saturating_sub(1)).copied() } else { None };
    let shown = found.get(..limit.min(found.len())).unwrap_or_default();
    Ok(Page { items: tx.unreadable.each("tokens", shown, decode), next })
}

fn decode(row: &DbRow) -> rows::Decoded<TokenRecord> {
    let hash: Vec<u8> = row.try_get("hash")?;
    let hash = hash.try_into().map_err(|_| rows::wrong("hash", "it does not have 32 bytes"))?;
    let (role, scope): (String, String) = (row.try_get("role")?, row.try_get("scope")?);
    let allowed_ips: String = row.try_get("allowed_ips")?;
    let id = |column| row.try_get::<Option<Uuid>, _>(column).map(|id| id.map(TokenId::from_uuid));
    Ok(TokenRecord {
        hash: TokenHash::from_bytes(hash),
        id: TokenId::from_uuid(row.try_get("id")?),
        name: row.try_get("name")?,
        prefix: row.try_get("prefix")?,
        grant: Grant {
            tenant: row.try_get::<Option<i32>, _>("tenant")?.map(TenantId::from_raw),
            role: role.parse().map_err(|error: String| rows::wrong("role", error))?,
            scope: serde_json::from_str(&scope).map_err(|error| rows::wrong("scope", error))?,
        },
        allowed_ips: serde_json::from_str(&allowed_ips).map_err(|error| rows::wrong("allowed_ips", error))?,
        created_at: rows::at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        expires_at: rows::time(row, "expires_at")?,
        last_used_at: rows::time(row, "last_used_at")?,
        last_used_ip: row.try_get("last_used_ip")?,
        revoked_at: rows::time(row, "revoked_at")?,
        rotated_from: id("rotated_from")?,
    })
}

#[async_trait]
impl TokenTx for DbTx {
    async fn setting(&mut self, name: &str) -> Result<Option<String>> {
        self.optional_scalar(query!("tokens/setting", name)).await
    }
    async fn set_setting(&mut self, name: &str, value: &str) -> Result<()> {
        self.execute(query!("tokens/set_setting", name, value)).await.map(drop)
    }
    async fn tokens_by_hash(&mut self, hashes: &[TokenHash]) -> Result<Vec<TokenRecord>> {
        let found = self.fetch_all(query!("tokens/tokens_by_hash", rows::hashes(hashes))).await?;
        Ok(self.unreadable.each("tokens", &found, decode))
    }
    async fn token_by_id(&mut self, id: TokenId) -> Result<Option<TokenRecord>> {
        let found = self.fetch_optional(query!("tokens/token_by_id", id.uuid())).await?;
        found.as_ref().map(decode).transpose().failed(self.doing)
    }
    async fn live_tokens(&mut self, owner: TokenOwner) -> Result<Vec<(TokenId, String)>> {
        let live = query!("tokens/live_tokens", owner_key(owner), self.now.millis());
        let found: Vec<(Uuid, String)> = self.fetch_all_as(live).await?;
        Ok(found.into_iter().map(|(id, name)| (TokenId::from_uuid(id), name)).collect())
    }
    async fn rotations(&mut self, owner: TokenOwner) -> Result<Rotations> {
        let found: Vec<(Uuid, Uuid)> = self.fetch_all_as(query!("tokens/rotations", owner_key(owner))).await?;
        Ok(found.into_iter().map(|(token, from)| (TokenId::from_uuid(token), TokenId::from_uuid(from))).collect())
    }
    async fn count_expiring(&mut self, until: DbTime) -> Result<u64> {
        let count: i64 = self.scalar(query!("tokens/count_expiring", self.now.millis(), until.millis())).await?;
        Ok(count.unsigned_abs())
    }
    async fn insert_token(&mut self, token: &TokenRecord) -> Result<()> {
        let json = |text: serde_json::Result<String>| text.unwrap_or_default();
        let insert = query!(
            "tokens/insert_token",
            token.hash.as_bytes().as_slice(),
            token.id.uuid(),
            token.grant.tenant.map(TenantId::raw),
            rows::text(&token.name),
            &token.prefix,
            token.grant.role.name(),
            json(serde_json::to_string(&token.grant.scope)),
            json(serde_json::to_string(&token.allowed_ips)),
            token.created_at.millis(),
            rows::text(&token.created_by),
            token.expires_at.map(DbTime::millis),
            token.rotated_from.map(TokenId::uuid),
        );
        self.execute_or_refuse(insert).await.map(drop)
    }
    async fn end_token(&mut self, id: TokenId) -> Result<()> {
        self.execute(query!("tokens/revoke_token", id.uuid(), self.now.millis())).await.map(drop)
    }
    async fn expire_token(&mut self, id: TokenId, at: DbTime) -> Result<()> {
        self.execute(query!("tokens/expire_token", id.uuid(), at.millis())).await.map(drop)
    }
    async fn touch_token(&mut self, id: TokenId, ip: &str, unless_after: DbTime) -> Result<()> {
        let touch = query!("tokens/touch_token", id.uuid(), self.now.millis(), ip, unless_after.millis());
        self.execute(touch).await.map(drop)
    }
    async fn prune_tokens(&mut self, before: DbTime, limit: usize) -> Result<u64> {
        self.execute(query!("tokens/prune_tokens", before.millis(), rows::limit(limit))).await
    }
    async fn audit_denied(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        row: (String, String),
    ) -> Result<()> {
        verbs::audit(self, tenant, actor, action, &[row], AuditResult::Denied).await
    }
}
