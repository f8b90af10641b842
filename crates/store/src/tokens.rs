//! The transactions about API tokens and the settings of the installation, with their parameters and results.

use async_trait::async_trait;
use everytick_domain::{
    access::{Grant, Lifetime, RunKey, TokenHash},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};

use crate::{Actor, AuditResult, Page, Result};

/// A use of a token is written at most once in this time.
pub const USE_NOTED_EVERY: Span = Span::minutes(1);
/// Tokens that were revoked or have expired are removed after this time.
pub const ENDED_TOKENS_KEPT: Span = Span::days(30);

/// A token as it is stored. The token itself is known only to its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRecord {
    pub hash: TokenHash,
    pub id: TokenId,
    pub name: String,
    /// The first characters of the token.
    pub prefix: String,
    pub grant: Grant,
    /// Networks from which the token is accepted. Empty: all.
    pub allowed_ips: Vec<String>,
    pub created_at: DbTime,
    pub created_by: String,
    pub expires_at: Option<DbTime>,
    pub last_used_at: Option<DbTime>,
    pub last_used_ip: Option<String>,
    pub revoked_at: Option<DbTime>,
    pub rotated_from: Option<TokenId>,
}

impl TokenRecord {
    #[must_use]
    pub fn is_live(&self, now: DbTime) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}

/// The secret parts of a new token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenKey {
    pub hash: TokenHash,
    pub id: TokenId,
    pub prefix: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    pub key: TokenKey,
    pub name: String,
    pub grant: Grant,
    pub allowed_ips: Vec<String>,
    pub lifetime: Lifetime,
}

/// On whose authority a token is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Creator {
    /// A credential with this grant. It cannot create a stronger one.
    Grant(Grant),
    /// A caller of an open API, who may do everything.
    Open,
    /// The owner of the database. Refused once a credential exists.
    First,
}

/// Which tokens a caller can see: those of a tenant (`None`: of no tenant).
pub type TokenOwner = Option<TenantId>;

/// The transactions about tokens. Each change writes an audit row in its transaction, and notifies all nodes.
#[async_trait]
pub trait TokenStore: Send + Sync + 'static {
    /// Creates a token. The first one makes every request need a credential, in the same transaction; it is refused
    /// while a node of a release that checks no tokens is alive. Refused if the token is stronger than its creator, if
    /// a valid token of the tenant has the name, or if the tenant has reached its quota.
    async fn create_token(&self, actor: &Actor, creator: &Creator, token: NewToken) -> Result<TokenRecord>;
    /// Creates the tokens by which a node serves the user that runs it. Replaces valid tokens of the same names.
    /// Returns false, and does nothing, once an operator has created a token.
    async fn create_node_tokens(&self, actor: &Actor, tokens: Vec<NewToken>) -> Result<bool>;
    /// The tokens with these hashes, valid or not, and the time of the database. A token that cannot be decoded is left out.
    async fn find_tokens(&self, hashes: &[TokenHash]) -> Result<(Vec<TokenRecord>, DbTime)>;
    /// The same for one token.
    async fn find_token(&self, hash: &TokenHash) -> Result<(Option<TokenRecord>, DbTime)> {
        let (found, now) = self.find_tokens(std::slice::from_ref(hash)).await?;
        Ok((found.into_iter().next(), now))
    }
    async fn get_token(&self, owner: TokenOwner, id: TokenId) -> Result<TokenRecord>;
    /// Tokens that are not revoked, in the order of their creation, after the given one.
    async fn list_tokens(
        &self,
        owner: TokenOwner,
        after: Option<TokenId>,
        limit: usize,
    ) -> Result<Page<TokenRecord, TokenId>>;
    /// Revokes a token, and the tokens that were made from it by rotation. Returns the token first, then those of the others
    /// that were valid.
    async fn revoke_token(&self, actor: &Actor, owner: TokenOwner, id: TokenId) -> Result<Vec<TokenRecord>>;
    /// Creates a token with the name, grant and lifetime of a valid one, which expires after the overlap. `Rotations::check`
    /// has the limits.
    async fn rotate_token(
        &self,
        actor: &Actor,
        owner: TokenOwner,
        id: TokenId,
        new: TokenKey,
        overlap: Span,
    ) -> Result<TokenRecord>;
    /// The number of valid tokens that expire within this time and have not been rotated.
    async fn count_expiring(&self, within: Span) -> Result<u64>;
    /// Removes tokens that ended before `before`; at most `limit`. Returns how many.
    async fn prune_tokens(&self, before: DbTime, limit: usize) -> Result<u64>;
    /// Stores when and from where a token was used, unless that was stored within [`USE_NOTED_EVERY`].
    async fn note_token_used(&self, id: TokenId, ip: &str) -> Result<()>;

    /// Whether every request needs a credential.
    async fn auth_required(&self) -> Result<bool>;
    /// From now on every request needs a credential, although no token was created: a node accepts other credentials. Refused
    /// while a node of a release that checks none is alive.
    async fn require_auth(&self, actor: &Actor) -> Result<()>;
    /// Lets an API without the flag `--auth required` serve callers without a credential again. Tokens stay valid.
    async fn reset_access(&self, actor: &Actor) -> Result<()>;
    /// The key of run tokens. Stores the given one if there is none.
    async fn run_key(&self, fresh: RunKey) -> Result<RunKey>;
    /// Writes the audit row of a request that changed nothing.
    async fn note_refused(
        &self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: &str,
        result: AuditResult,
    ) -> Result<()>;
    /// The same for a request that was denied.
    async fn note_denied(
        &self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: &str,
    ) -> Result<()> {
        self.note_refused(tenant, actor, action, subject, detail, AuditResult::Denied).await
    }
}
