//! API tokens and the settings of the installation. Every change locks the settings first, so that changes follow each
//! other: two first tokens, or two tokens of one name, are never created at once.

use std::collections::HashSet;

use async_trait::async_trait;
use everytick_domain::{
    access::{Grant, Lifetime, Rotation, Rotations, RunKey, TokenHash},
    ids::{TenantId, TokenId},
    invalid::Invalid,
    time::{DbTime, Span},
};

use super::{Tx, audit_one, tenant};
use crate::{Actor, Creator, NewToken, Result, StoreError, TokenKey, TokenOwner, TokenRecord, USE_NOTED_EVERY};

/// The verbs of tokens and settings.
#[async_trait]
pub trait TokenTx: Tx {
    async fn setting(&mut self, name: &str) -> Result<Option<String>>;
    async fn set_setting(&mut self, name: &str, value: &str) -> Result<()>;
    /// The tokens with these hashes. Leaves out what cannot be decoded.
    async fn tokens_by_hash(&mut self, hashes: &[TokenHash]) -> Result<Vec<TokenRecord>>;
    async fn token_by_id(&mut self, id: TokenId) -> Result<Option<TokenRecord>>;
    /// The valid tokens, with their names.
    async fn live_tokens(&mut self, owner: TokenOwner) -> Result<Vec<(TokenId, String)>>;
    async fn rotations(&mut self, owner: TokenOwner) -> Result<Rotations>;
    /// The valid tokens that expire until this time and have not been rotated.
    async fn count_expiring(&mut self, until: DbTime) -> Result<u64>;
    async fn insert_token(&mut self, token: &TokenRecord) -> Result<()>;
    async fn end_token(&mut self, id: TokenId) -> Result<()>;
    /// Lets a token expire at this time, if it does not expire earlier.
    async fn expire_token(&mut self, id: TokenId, at: DbTime) -> Result<()>;
    /// Stores a use, unless one was stored after this time.
    async fn touch_token(&mut self, id: TokenId, ip: &str, unless_after: DbTime) -> Result<()>;
    /// Removes tokens that ended before this time.
    async fn prune_tokens(&mut self, before: DbTime, limit: usize) -> Result<u64>;
    /// Writes the audit row of a denied request.
    async fn audit_denied(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        row: (String, String),
    ) -> Result<()>;
}

const AUTH_REQUIRED: &str = "auth_required";
/// "true" while every credential was created by a node for the user that runs it.
const ONLY_NODE_TOKENS: &str = "only_node_tokens";
const RUN_KEY: &str = "run_token_key";
const YES: &str = "true";
const NO: &str = "false";

pub async fn auth_required<T: TokenTx + ?Sized>(tx: &mut T) -> Result<bool> {
    is_set(tx, AUTH_REQUIRED).await
}

async fn is_set<T: TokenTx + ?Sized>(tx: &mut T, name: &str) -> Result<bool> {
    Ok(tx.setting(name).await?.as_deref() == Some(YES))
}

pub async fn create_token<T: TokenTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    creator: &Creator,
    new: NewToken,
) -> Result<TokenRecord> {
    tx.lock_access().await?;
    let required = auth_required(tx).await?;
    match creator {
        Creator::Grant(own) => own.check_create(&new.grant).map_err(StoreError::NotAllowed)?,
        Creator::First if required => {
            return Err(conflict("a credential exists already; create further tokens with it, or see `access reset`"));
        }
        Creator::First | Creator::Open => {}
    }
    new.grant.check().map_err(super::invalid)?;
    tx.read_clock().await?;
    let owner = new.grant.tenant;
    let live = tx.live_tokens(owner).await?;
    check_tokens(tx, owner, live.len()).await?;
    let named: Vec<TokenId> = live.into_iter().filter(|(_, name)| *name == new.name).map(|(id, _)| id).collect();
    if required && !named.is_empty() {
        return Err(conflict(&format!("a token named {:?} exists; choose another name, or revoke it", new.name)));
    }
    // After a reset, the first token replaces a valid token of the same name.
    end_all(tx, &named).await?;
    if !required {
        close(tx, actor).await?;
    }
    tx.set_setting(ONLY_NODE_TOKENS, NO).await?;
    let token = insert(tx, actor, new).await?;
    tx.notify_access().await?;
    Ok(token)
}

/// Checks the quota of the tenant. Tokens without a tenant have the default of the installation.
async fn check_tokens<T: TokenTx + ?Sized>(tx: &mut T, owner: TokenOwner, live: usize) -> Result<()> {
    let quotas = match owner {
        Some(tenant) => tenant::shared(tx, tenant).await?.quotas(tx.limits()),
        None => tenant::default_quotas(tx.limits()),
    };
    tenant::check_quota("tokens", live as u64, quotas.tokens)
}

pub async fn create_node_tokens<T: TokenTx + ?Sized>(tx: &mut T, actor: &Actor, new: Vec<NewToken>) -> Result<bool> {
    tx.lock_access().await?;
    let required = auth_required(tx).await?;
    if required && !is_set(tx, ONLY_NODE_TOKENS).await? {
        return Ok(false);
    }
    tx.read_clock().await?;
    if !required {
        close(tx, actor).await?;
        tx.set_setting(ONLY_NODE_TOKENS, YES).await?;
    }
    for token in new {
        let live = tx.live_tokens(token.grant.tenant).await?;
        let named: Vec<TokenId> = live.into_iter().filter(|(_, name)| *name == token.name).map(|(id, _)| id).collect();
        end_all(tx, &named).await?;
        insert(tx, actor, token).await?;
    }
    tx.notify_access().await?;
    Ok(true)
}

async fn end_all<T: TokenTx + ?Sized>(tx: &mut T, tokens: &[TokenId]) -> Result<()> {
    for id in tokens {
        tx.end_token(*id).await?;
    }
    Ok(())
}

/// From now on every request needs a credential. Refused while nodes are alive that do not check tokens.
async fn close<T: TokenTx + ?Sized>(tx: &mut T, actor: &Actor) -> Result<()> {
    let unchecking = tx.unchecking_nodes().await?;
    if !unchecking.is_empty() {
        let nodes = unchecking.join(", ");
        return Err(conflict(&format!(
            "nodes of an earlier release are alive and check no tokens: {nodes}; upgrade or stop them first"
        )));
    }
    set_required(tx, actor, "require_auth", YES).await?;
    tx.refuse_unchecking_nodes().await
}

async fn set_required<T: TokenTx + ?Sized>(tx: &mut T, actor: &Actor, action: &str, value: &str) -> Result<()> {
    tx.set_setting(AUTH_REQUIRED, value).await?;
    let detail = serde_json::json!({ AUTH_REQUIRED: value == YES }).to_string();
    audit_one(tx, TenantId::DEFAULT, actor, action, format!("setting/{AUTH_REQUIRED}"), detail).await
}

async fn insert<T: TokenTx + ?Sized>(tx: &mut T, actor: &Actor, new: NewToken) -> Result<TokenRecord> {
    let NewToken { key, name, grant, allowed_ips, lifetime } = new;
    let now = tx.now();
    let expires_at = match lifetime {
        Lifetime::For(span) => Some(now.plus(span)),
        Lifetime::Unlimited => None,
    };
    let token = TokenRecord { expires_at, ..record(key, name, grant, allowed_ips, actor, now) };
    tx.insert_token(&token).await?;
    audit_token(tx, actor, "create_token", &token).await?;
    Ok(token)
}

fn record(
    key: TokenKey,
    name: String,
    grant: Grant,
    allowed_ips: Vec<String>,
    actor: &Actor,
    now: DbTime,
) -> TokenRecord {
    TokenRecord {
        hash: key.hash,
        id: key.id,
        name,
        prefix: key.prefix,
        grant,
        allowed_ips,
        created_at: now,
        created_by: actor.name.clone(),
        expires_at: None,
        last_used_at: None,
        last_used_ip: None,
        revoked_at: None,
        rotated_from: None,
    }
}

/// The tenant whose audit trail has the changes of a token. Tokens without a tenant are those of the installation.
fn audited(owner: TokenOwner) -> TenantId {
    owner.unwrap_or(TenantId::DEFAULT)
}

async fn audit_token<T: TokenTx + ?Sized>(tx: &mut T, actor: &Actor, action: &str, token: &TokenRecord) -> Result<()> {
    let detail = serde_json::json!({
        "name": token.name,
        "role": token.grant.role,
        "scope": token.grant.scope,
        "expires_at": token.expires_at,
        "rotated_from": token.rotated_from,
    });
    audit_one(tx, audited(token.grant.tenant), actor, action, format!("token/{}", token.id), detail.to_string()).await
}

pub async fn find_tokens<T: TokenTx + ?Sized>(tx: &mut T, hashes: &[TokenHash]) -> Result<(Vec<TokenRecord>, DbTime)> {
    let found = tx.tokens_by_hash(hashes).await?;
    Ok((found, tx.read_clock().await?))
}

pub async fn get_token<T: TokenTx + ?Sized>(tx: &mut T, owner: TokenOwner, id: TokenId) -> Result<TokenRecord> {
    let found = tx.token_by_id(id).await?.filter(|token| token.grant.tenant == owner && token.revoked_at.is_none());
    found.ok_or(StoreError::NotFound("token"))
}

pub async fn revoke_token<T: TokenTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    owner: TokenOwner,
    id: TokenId,
) -> Result<Vec<TokenRecord>> {
    tx.lock_access().await?;
    let mut ended = vec![get_token(tx, owner, id).await?];
    let now = tx.read_clock().await?;
    for successor in tx.rotations(owner).await?.successors(id) {
        ended.extend(tx.token_by_id(successor).await?.filter(|token| token.is_live(now)));
    }
    for token in &mut ended {
        tx.end_token(token.id).await?;
        audit_token(tx, actor, "revoke_token", token).await?;
        token.revoked_at = Some(now);
    }
    tx.notify_access().await?;
    Ok(ended)
}

pub async fn rotate_token<T: TokenTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    owner: TokenOwner,
    id: TokenId,
    new: TokenKey,
    overlap: Span,
) -> Result<TokenRecord> {
    tx.lock_access().await?;
    let old = get_token(tx, owner, id).await?;
    let now = tx.read_clock().await?;
    if !old.is_live(now) {
        return Err(conflict("the token has expired; create a new one"));
    }
    let live: HashSet<TokenId> = tx.live_tokens(owner).await?.into_iter().map(|(id, _)| id).collect();
    let asked = Rotation { token: id, age: now.since(old.created_at), overlap };
    tx.rotations(owner).await?.check(asked, |token| live.contains(&token)).map_err(StoreError::Conflict)?;
    check_tokens(tx, owner, live.len()).await?;
    let fresh = record(new, old.name.clone(), old.grant.clone(), old.allowed_ips.clone(), actor, now);
    // The same lifetime as the old token. `check` has refused a token that was rotated before, whose lifetime is shorter.
    let expires_at = old.expires_at.map(|at| now.plus(at.since(old.created_at)));
    let token = TokenRecord { expires_at, rotated_from: Some(id), ..fresh };
    tx.insert_token(&token).await?;
    tx.expire_token(id, now.plus(overlap)).await?;
    audit_token(tx, actor, "rotate_token", &token).await?;
    tx.notify_access().await?;
    Ok(token)
}

pub async fn count_expiring<T: TokenTx + ?Sized>(tx: &mut T, within: Span) -> Result<u64> {
    let now = tx.read_clock().await?;
    tx.count_expiring(now.plus(within)).await
}

pub async fn prune_tokens<T: TokenTx + ?Sized>(tx: &mut T, before: DbTime, limit: usize) -> Result<u64> {
    tx.prune_tokens(before, limit).await
}

pub async fn note_token_used<T: TokenTx + ?Sized>(tx: &mut T, id: TokenId, ip: &str) -> Result<()> {
    let now = tx.read_clock().await?;
    tx.touch_token(id, ip, now.minus(USE_NOTED_EVERY)).await
}

pub async fn reset_access<T: TokenTx + ?Sized>(tx: &mut T, actor: &Actor) -> Result<()> {
    tx.lock_access().await?;
    tx.read_clock().await?;
    set_required(tx, actor, "reset_access", NO).await?;
    tx.set_setting(ONLY_NODE_TOKENS, NO).await?;
    tx.notify_access().await
}

pub async fn run_key<T: TokenTx + ?Sized>(tx: &mut T, fresh: RunKey) -> Result<RunKey> {
    tx.lock_access().await?;
    if let Some(key) = tx.setting(RUN_KEY).await? {
        let source = "the stored key of run tokens is damaged".into();
        return RunKey::from_hex(&key).ok_or(StoreError::Unreadable { doing: tx.doing(), source });
    }
    tx.set_setting(RUN_KEY, &fresh.to_hex()).await?;
    Ok(fresh)
}

pub async fn note_denied<T: TokenTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    action: &str,
    subject: &str,
    detail: &str,
) -> Result<()> {
    tx.read_clock().await?;
    tx.audit_denied(tenant, actor, action, (subject.to_owned(), detail.to_owned())).await
}

fn conflict(message: &str) -> StoreError {
    StoreError::Conflict(Invalid::new("", message))
}
