//! Credentials of callers: looks up tokens and sessions, with a cache, and changes them.
//!
//! A cached credential is used for at most [`CACHED_FOR`]. A change by this process, or a notification of a change, makes
//! the cache stale. So a revoked token or an ended session ends within that time on every node. A request with a cached
//! credential costs no query. `lookups` limits the queries for credentials that are not cached.

mod lookups;
mod reader;
mod sessions;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use everytick_domain::{
    access::{Grant, Lifetime, Token, TokenHash},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_store::{
    Actor, AuditResult, Creator, NewToken, Page, Result, SessionRecord, Store, StoreError, TokenKey, TokenOwner,
    TokenRecord,
};

use self::reader::Reader;
use crate::{Hints, clock::MonoTime, commands::Entropy};

pub use sessions::{Login, Session};

/// How long a cached token is used before it is read again.
pub const CACHED_FOR: Duration = Duration::from_secs(5);
/// How often a streamed response checks that its caller's credential is still valid.
pub const VALID_CHECK_EVERY: Duration = Duration::from_secs(1);
/// The time between two queries for credentials that are probably guesses.
const GUESSES_PAUSE: Duration = Duration::from_millis(20);

/// The valid token of a request.
#[derive(Clone, Debug)]
pub struct Credential {
    pub token: Arc<TokenRecord>,
    /// A lower bound of the time on the database clock.
    pub now: DbTime,
}

/// How to look up a credential that is not in the cache. Both ways find every valid one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// At once.
    Prompt,
    /// For callers that sent wrong credentials before: in a query that these callers share, at most one query per 20 ms.
    Paced,
}

/// The permissions and the lifetime of a new token.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    pub name: String,
    pub grant: Grant,
    pub allowed_ips: Vec<String>,
    pub lifetime: Lifetime,
}

/// Looks up and changes tokens. Cheap to clone: all clones share one cache.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    hints: Hints,
    entropy: Arc<dyn Entropy>,
    tokens: Reader<TokenRecord>,
    sessions: Reader<SessionRecord>,
    /// Whether requests need a credential, when that was read, and the `Hints::access_version` of then.
    required: Mutex<Option<(bool, MonoTime, u64)>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    pub(crate) fn new(store: Arc<dyn Store>, hints: Hints, entropy: Arc<dyn Entropy>) -> Self {
        let tokens = Reader::tokens(store.clone(), hints.clone());
        let sessions = Reader::sessions(store.clone(), hints.clone());
        Self(Arc::new(Inner { store, hints, entropy, tokens, sessions, required: Mutex::default() }))
    }

    /// Whether every request needs a credential. Costs a query every [`CACHED_FOR`].
    pub async fn is_required(&self) -> Result<bool> {
        let version = self.0.hints.access_version();
        let cached = *self.0.required.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((required, read, of)) = cached
            && of == version
            && MonoTime::now().since(read) < CACHED_FOR
        {
            return Ok(required);
        }
        let required = self.0.store.auth_required().await?;
        let fresh = Some((required, MonoTime::now(), version));
        *self.0.required.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(required)
    }

    /// Whether this process has seen the token, perhaps long ago. A caller with a known token is not guessing.
    #[must_use]
    pub fn knows(&self, hash: &TokenHash) -> bool {
        self.0.tokens.knows(hash)
    }

    /// The valid token with this hash.
    pub async fn find(&self, hash: &TokenHash, lookup: Lookup) -> Result<Option<Credential>> {
        let found = self.0.tokens.find(hash, lookup).await?;
        Ok(found.map(|found| Credential { token: found.record, now: found.now }))
    }

    /// Whether a token is still valid. A streamed response calls this every [`VALID_CHECK_EVERY`], and so ends within
    /// [`CACHED_FOR`] of a revocation.
    pub async fn is_valid(&self, hash: &TokenHash) -> Result<bool> {
        self.0.tokens.is_valid(hash).await
    }

    /// Stores when and from where a token was used, at most once a minute. The request does not wait for it.
    pub fn note_use(&self, hash: &TokenHash, ip: String) {
        let Some(token) = self.0.tokens.use_to_note(hash) else { return };
        let store = self.0.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.note_token_used(token.id, &ip).await {
                tracing::debug!(%error, token = %token.id, "could not store the use of a token");
            }
        });
    }

    /// Creates a token. Returns it with its secret text, which is stored nowhere.
    pub async fn create(
        &self,
        actor: &Actor,
        creator: &Creator,
        request: TokenRequest,
    ) -> Result<(Token, TokenRecord)> {
        let (token, key) = self.fresh().await?;
        let TokenRequest { name, grant, allowed_ips, lifetime } = request;
        let new = NewToken { key, name, grant, allowed_ips, lifetime };
        let made = self.0.store.create_token(actor, creator, new).await;
        self.0.hints.access_changed();
        Ok((token, made?))
    }

    pub async fn rotate(
        &self,
        actor: &Actor,
        owner: TokenOwner,
        id: TokenId,
        overlap: Span,
    ) -> Result<(Token, TokenRecord)> {
        let (token, key) = self.fresh().await?;
        let made = self.0.store.rotate_token(actor, owner, id, key, overlap).await;
        self.0.hints.access_changed();
        Ok((token, made?))
    }

    pub async fn revoke(&self, actor: &Actor, owner: TokenOwner, id: TokenId) -> Result<Vec<TokenRecord>> {
        let revoked = self.0.store.revoke_token(actor, owner, id).await;
        self.0.hints.access_changed();
        revoked
    }

    pub async fn get(&self, owner: TokenOwner, id: TokenId) -> Result<TokenRecord> {
        self.0.store.get_token(owner, id).await
    }

    pub async fn list(
        &self,
        owner: TokenOwner,
        after: Option<TokenId>,
        limit: usize,
    ) -> Result<Page<TokenRecord, TokenId>> {
        self.0.store.list_tokens(owner, after, limit).await
    }

    /// Writes the audit row of a request that was denied or has failed.
    pub async fn note_refused(
        &self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: &str,
        result: AuditResult,
    ) -> Result<()> {
        self.0.store.note_refused(tenant, actor, action, subject, detail, result).await
    }

    async fn fresh(&self) -> Result<(Token, TokenKey)> {
        let now = self.0.store.now().await?;
        new_token(now, self.0.entropy.as_ref())
    }
}

/// A random token, and the part of it that is stored.
pub fn new_token(now: DbTime, entropy: &dyn Entropy) -> Result<(Token, TokenKey)> {
    let (mut random, mut id) = ([0; 64], [0; 10]);
    entropy.fill(&mut random);
    entropy.fill(&mut id);
    let source = || "too few random bytes".into();
    let token =
        Token::from_random(&random).ok_or_else(|| StoreError::Failed { doing: "make a token", source: source() })?;
    let key = TokenKey { hash: token.hash(), id: TokenId::new(now, id), prefix: token.prefix().to_owned() };
    Ok((token, key))
}
