//! Credentials of callers: looks up tokens, with a cache, and changes them.
//!
//! A cached token is used for at most [`CACHED_FOR`]. A change by this process, or a notification of a change, makes
//! the cache stale. So a revoked token ends within that time on every node. A request with a cached token costs no
//! query. `lookups` limits the queries for tokens that are not cached.

mod lookups;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everytick_domain::{
    access::{Grant, Lifetime, Token, TokenHash},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_store::{
    Actor, AuditResult, Creator, NewToken, Page, Result, Store, StoreError, TokenKey, TokenOwner, TokenRecord,
    USE_NOTED_EVERY,
};

use self::lookups::Lookups;
use crate::{Hints, clock::MonoTime, commands::Entropy};

/// How long a cached token is used before it is read again.
pub const CACHED_FOR: Duration = Duration::from_secs(5);
/// How often a streamed response checks that its caller's token is still valid.
pub const VALID_CHECK_EVERY: Duration = Duration::from_secs(1);
/// The time between two queries for tokens that are probably guesses.
const GUESSES_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of tokens in the cache of a node.
const CACHED_MAX: usize = 10_000;

/// The valid token of a request.
#[derive(Clone, Debug)]
pub struct Credential {
    pub token: Arc<TokenRecord>,
    /// A lower bound of the time on the database clock.
    pub now: DbTime,
}

/// How to look up a token that is not in the cache. Both ways find every valid token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// At once.
    Prompt,
    /// For callers that sent wrong tokens before: in a query that these callers share, at most one query per 20 ms.
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
    prompt: Lookups,
    paced: Lookups,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// The `Hints::access_version` of the entries.
    version: u64,
    tokens: HashMap<TokenHash, Cached>,
    required: Option<(bool, MonoTime)>,
}

struct Cached {
    token: Arc<TokenRecord>,
    read_at: DbTime,
    read: MonoTime,
    /// When its use was last stored.
    noted: Option<MonoTime>,
    /// The token must be read again before it is used. The entry is kept for [`Access::knows`].
    stale: bool,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    pub(crate) fn new(store: Arc<dyn Store>, hints: Hints, entropy: Arc<dyn Entropy>) -> Self {
        let (prompt, paced) = (Lookups::new(store.clone(), Duration::ZERO), Lookups::new(store.clone(), GUESSES_PAUSE));
        Self(Arc::new(Inner { store, hints, entropy, prompt, paced, cache: Mutex::default() }))
    }

    /// Locks the cache. If tokens or settings have changed since the last call, marks all entries as stale first.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        let mut cache = self.0.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.0.hints.access_version();
        if cache.version != version {
            cache.version = version;
            cache.required = None;
            cache.tokens.values_mut().for_each(|cached| cached.stale = true);
        }
        cache
    }

    /// Whether every request needs a credential. Costs a query every [`CACHED_FOR`].
    pub async fn is_required(&self) -> Result<bool> {
        let cached = self.cache().required;
        if let Some((required, read)) = cached
            && MonoTime::now().since(read) < CACHED_FOR
        {
            return Ok(required);
        }
        let version = self.0.hints.access_version();
        let required = self.0.store.auth_required().await?;
        let mut cache = self.cache();
        if cache.version == version {
            cache.required = Some((required, MonoTime::now()));
        }
        Ok(required)
    }

    /// Whether this process has seen the token, perhaps long ago. A caller with a known token is not guessing.
    #[must_use]
    pub fn knows(&self, hash: &TokenHash) -> bool {
        self.cache().tokens.contains_key(hash)
    }

    /// The valid token with this hash.
    pub async fn find(&self, hash: &TokenHash, lookup: Lookup) -> Result<Option<Credential>> {
        self.find_read_within(hash, lookup, CACHED_FOR).await
    }

    /// Whether a token is still valid. A streamed response calls this every [`VALID_CHECK_EVERY`], and so ends within
    /// [`CACHED_FOR`] of a revocation.
    pub async fn is_valid(&self, hash: &TokenHash) -> Result<bool> {
        let found = self.find_read_within(hash, Lookup::Prompt, CACHED_FOR - VALID_CHECK_EVERY).await?;
        Ok(found.is_some())
    }

    async fn find_read_within(
        &self,
        hash: &TokenHash,
        lookup: Lookup,
        age_max: Duration,
    ) -> Result<Option<Credential>> {
        if let Some(cached) = self.cached(hash, age_max) {
            return Ok(valid(cached));
        }
        let version = self.0.hints.access_version();
        let lookups = match lookup {
            Lookup::Prompt => &self.0.prompt,
            Lookup::Paced => &self.0.paced,
        };
        let (found, now) = lookups.find(*hash).await?;
        let mut cache = self.cache();
        let Some(token) = found.map(Arc::new).filter(|token| token.is_live(now)) else {
            cache.tokens.remove(hash);
            return Ok(None);
        };
        let noted = cache.tokens.get(hash).and_then(|cached| cached.noted);
        if cache.tokens.len() >= CACHED_MAX && !cache.tokens.contains_key(hash) {
            cache.evict();
        }
        let stale = cache.version != version;
        let entry = Cached { token: token.clone(), read_at: now, read: MonoTime::now(), noted, stale };
        cache.tokens.insert(*hash, entry);
        Ok(Some(Credential { token, now }))
    }

    fn cached(&self, hash: &TokenHash, age_max: Duration) -> Option<Credential> {
        let cache = self.cache();
        let cached = cache.tokens.get(hash).filter(|cached| !cached.stale)?;
        let age = MonoTime::now().since(cached.read);
        let now = cached.read_at.plus(Span::from(age));
        (age < age_max).then(|| Credential { token: cached.token.clone(), now })
    }

    /// Stores when and from where a token was used, at most once a minute. The request does not wait for it.
    pub fn note_use(&self, hash: &TokenHash, ip: String) {
        let mut cache = self.cache();
        let now = MonoTime::now();
        let Some(cached) = cache.tokens.get_mut(hash) else { return };
        if cached.noted.is_some_and(|noted| now.since(noted) < Duration::from(USE_NOTED_EVERY)) {
            return;
        }
        cached.noted = Some(now);
        let (id, store) = (cached.token.id, self.0.store.clone());
        drop(cache);
        tokio::spawn(async move {
            if let Err(error) = store.note_token_used(id, &ip).await {
                tracing::debug!(%error, token = %id, "could not store the use of a token");
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

    /// Writes the audit row of a request that was denied or has failed. The result is also its action.
    pub async fn note_refused(
        &self,
        tenant: TenantId,
        actor: &Actor,
        subject: &str,
        detail: &str,
        result: AuditResult,
    ) -> Result<()> {
        self.0.store.note_refused(tenant, actor, result.word(), subject, detail, result).await
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

fn valid(credential: Credential) -> Option<Credential> {
    credential.token.is_live(credential.now).then_some(credential)
}

impl Cache {
    /// Removes the older half of the entries. A full cache is rare, so the cost of the sort does not matter.
    fn evict(&mut self) {
        let mut reads: Vec<MonoTime> = self.tokens.values().map(|cached| cached.read).collect();
        reads.sort_unstable();
        if let Some(middle) = reads.get(reads.len() / 2).copied() {
            self.tokens.retain(|_, cached| cached.read > middle);
        }
    }
}
