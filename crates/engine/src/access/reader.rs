//! Reads credentials of one kind, tokens or sessions, through a cache.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everytick_domain::{
    access::{SessionHash, TokenHash},
    time::{DbTime, Span},
};
use everytick_store::{Result, SessionRecord, Store, TokenRecord, USE_NOTED_EVERY};
use futures::FutureExt as _;

use super::{CACHED_FOR, GUESSES_PAUSE, Lookup, VALID_CHECK_EVERY, lookups::Lookups};
use crate::{Hints, clock::MonoTime};

/// Maximum number of entries in the cache of a node, for each kind.
const CACHED_MAX: usize = 10_000;

/// A stored credential.
pub(super) trait Record: Clone + Send + Sync + 'static {
    type Hash: Copy + Eq + Hash + Send + Sync + 'static;
    /// What a lookup does, for error messages.
    const DOING: &'static str;
    fn hash(&self) -> Self::Hash;
    fn is_live(&self, now: DbTime) -> bool;
}

impl Record for TokenRecord {
    type Hash = TokenHash;
    const DOING: &'static str = "look up a token";
    fn hash(&self) -> TokenHash {
        self.hash
    }
    fn is_live(&self, now: DbTime) -> bool {
        self.is_live(now)
    }
}

impl Record for SessionRecord {
    type Hash = SessionHash;
    const DOING: &'static str = "look up a session";
    fn hash(&self) -> SessionHash {
        self.hash
    }
    fn is_live(&self, now: DbTime) -> bool {
        self.is_live(now)
    }
}

/// A valid credential.
pub(super) struct Found<R> {
    pub(super) record: Arc<R>,
    /// A lower bound of the time on the database clock.
    pub(super) now: DbTime,
}

pub(super) struct Reader<R: Record> {
    hints: Hints,
    prompt: Lookups<R>,
    paced: Lookups<R>,
    cache: Mutex<Cache<R>>,
}

struct Cache<R: Record> {
    /// The `Hints::access_version` of the entries.
    version: u64,
    entries: HashMap<R::Hash, Cached<R>>,
}

struct Cached<R> {
    record: Arc<R>,
    read_at: DbTime,
    read: MonoTime,
    /// When its use was last stored.
    noted: Option<MonoTime>,
    /// The record must be read again before it is used. The entry is kept for [`Reader::knows`].
    stale: bool,
}

impl Reader<TokenRecord> {
    pub(super) fn tokens(store: Arc<dyn Store>, hints: Hints) -> Self {
        Self::new(hints, |pause| {
            let store = store.clone();
            let read = move |hashes: Vec<TokenHash>| {
                let store = store.clone();
                async move { store.find_tokens(&hashes).await }.boxed()
            };
            Lookups::new(Box::new(read), pause)
        })
    }
}

impl Reader<SessionRecord> {
    pub(super) fn sessions(store: Arc<dyn Store>, hints: Hints) -> Self {
        Self::new(hints, |pause| {
            let store = store.clone();
            let read = move |hashes: Vec<SessionHash>| {
                let store = store.clone();
                async move { store.find_sessions(&hashes).await }.boxed()
            };
            Lookups::new(Box::new(read), pause)
        })
    }
}

impl<R: Record> Reader<R> {
    fn new(hints: Hints, lookups: impl Fn(Duration) -> Lookups<R>) -> Self {
        let cache = Mutex::new(Cache { version: 0, entries: HashMap::new() });
        Self { hints, prompt: lookups(Duration::ZERO), paced: lookups(GUESSES_PAUSE), cache }
    }

    /// Locks the cache. If credentials or settings have changed since the last call, marks all entries as stale first.
    fn cache(&self) -> MutexGuard<'_, Cache<R>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.hints.access_version();
        if cache.version != version {
            cache.version = version;
            cache.entries.values_mut().for_each(|cached| cached.stale = true);
        }
        cache
    }

    /// Whether this process has seen the credential, perhaps long ago.
    pub(super) fn knows(&self, hash: &R::Hash) -> bool {
        self.cache().entries.contains_key(hash)
    }

    /// The valid credential with this hash.
    pub(super) async fn find(&self, hash: &R::Hash, lookup: Lookup) -> Result<Option<Found<R>>> {
        self.find_read_within(hash, lookup, CACHED_FOR).await
    }

    /// Whether a credential is still valid. Called every [`VALID_CHECK_EVERY`], so the answer is at most [`CACHED_FOR`]
    /// old when it is used.
    pub(super) async fn is_valid(&self, hash: &R::Hash) -> Result<bool> {
        let found = self.find_read_within(hash, Lookup::Prompt, CACHED_FOR - VALID_CHECK_EVERY).await?;
        Ok(found.is_some())
    }

    async fn find_read_within(&self, hash: &R::Hash, lookup: Lookup, age_max: Duration) -> Result<Option<Found<R>>> {
        if let Some(cached) = self.cached(hash, age_max) {
            return Ok(cached.record.is_live(cached.now).then_some(cached));
        }
        let version = self.hints.access_version();
        let lookups = match lookup {
            Lookup::Prompt => &self.prompt,
            Lookup::Paced => &self.paced,
        };
        let (found, now) = lookups.find(*hash).await?;
        let mut cache = self.cache();
        let Some(record) = found.map(Arc::new).filter(|record| record.is_live(now)) else {
            cache.entries.remove(hash);
            return Ok(None);
        };
        let noted = cache.entries.get(hash).and_then(|cached| cached.noted);
        if cache.entries.len() >= CACHED_MAX && !cache.entries.contains_key(hash) {
            cache.evict();
        }
        let stale = cache.version != version;
        let entry = Cached { record: record.clone(), read_at: now, read: MonoTime::now(), noted, stale };
        cache.entries.insert(*hash, entry);
        Ok(Some(Found { record, now }))
    }

    fn cached(&self, hash: &R::Hash, age_max: Duration) -> Option<Found<R>> {
        let cache = self.cache();
        let cached = cache.entries.get(hash).filter(|cached| !cached.stale)?;
        let age = MonoTime::now().since(cached.read);
        let now = cached.read_at.plus(Span::from(age));
        (age < age_max).then(|| Found { record: cached.record.clone(), now })
    }

    /// The record, if its use must be stored now: at most once in [`USE_NOTED_EVERY`].
    pub(super) fn use_to_note(&self, hash: &R::Hash) -> Option<Arc<R>> {
        let mut cache = self.cache();
        let now = MonoTime::now();
        let cached = cache.entries.get_mut(hash)?;
        if cached.noted.is_some_and(|noted| now.since(noted) < Duration::from(USE_NOTED_EVERY)) {
            return None;
        }
        cached.noted = Some(now);
        Some(cached.record.clone())
    }
}

impl<R: Record> Cache<R> {
    /// Removes the older half of the entries. A full cache is rare, so the cost of the sort does not matter.
    fn evict(&mut self) {
        let mut reads: Vec<MonoTime> = self.entries.values().map(|cached| cached.read).collect();
        reads.sort_unstable();
        if let Some(middle) = reads.get(reads.len() / 2).copied() {
            self.entries.retain(|_, cached| cached.read > middle);
        }
    }
}
