//! The tenants that requests and deliveries name: reads them, with a cache. A cached tenant is used for at most
//! [`CACHED_FOR`]. A change by this process, or a notification of a change, makes the cache stale. So a suspension takes effect
//! within that time on every node, and a request or a delivery of a cached tenant costs no query.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everytick_domain::ids::TenantId;
use everytick_store::{Actor, NewTenant, Page, Result, Store, StoreError, TenantChange, TenantRecord, TenantRef};

use crate::{CACHED_FOR, Hints, clock::MonoTime};

/// Most tenants in the cache of a node.
const CACHED_MAX: usize = 10_000;

/// Reads and changes tenants. Cheap to clone: all clones share one cache.
#[derive(Clone)]
pub struct Tenants(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    hints: Hints,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// The `Hints::access_version` of the entries that are not stale.
    version: u64,
    by_id: HashMap<TenantId, Cached>,
    ids: HashMap<String, TenantId>,
}

struct Cached {
    tenant: Arc<TenantRecord>,
    read: MonoTime,
    stale: bool,
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").finish_non_exhaustive()
    }
}

impl Tenants {
    pub(crate) fn new(store: Arc<dyn Store>, hints: Hints) -> Self {
        Self(Arc::new(Inner { store, hints, cache: Mutex::default() }))
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        let mut cache = self.0.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.0.hints.access_version();
        if cache.version != version {
            cache.version = version;
            cache.by_id.values_mut().for_each(|cached| cached.stale = true);
        }
        cache
    }

    /// The tenant, if it was read a moment ago.
    pub(crate) fn cached(&self, id: TenantId) -> Option<Arc<TenantRecord>> {
        self.cache().fresh(id)
    }

    pub async fn get(&self, id: TenantId) -> Result<Arc<TenantRecord>> {
        match self.cached(id) {
            Some(tenant) => Ok(tenant),
            None => self.read(&TenantRef::Id(id)).await,
        }
    }

    pub async fn named(&self, name: &str) -> Result<Arc<TenantRecord>> {
        let cached = {
            let cache = self.cache();
            cache.ids.get(name).and_then(|id| cache.fresh(*id)).filter(|tenant| tenant.name == name)
        };
        match cached {
            Some(tenant) => Ok(tenant),
            None => self.read(&TenantRef::Name(name.to_owned())).await,
        }
    }

    /// The tenant as this process knew it last, perhaps long ago: for a delivery while the database does not answer.
    pub(crate) fn last_known(&self, id: TenantId) -> Option<Arc<TenantRecord>> {
        self.cache().by_id.get(&id).map(|cached| cached.tenant.clone())
    }

    /// The tenant as it is stored now.
    pub async fn read_now(&self, tenant: &TenantRef) -> Result<Arc<TenantRecord>> {
        self.read(tenant).await
    }

    async fn read(&self, tenant: &TenantRef) -> Result<Arc<TenantRecord>> {
        let version = self.0.hints.access_version();
        let found = self.0.store.get_tenant(tenant).await;
        let mut cache = self.cache();
        let tenant = match found {
            Ok(tenant) => Arc::new(tenant),
            Err(error) => {
                if let (StoreError::NotFound(_), TenantRef::Id(id)) = (&error, tenant) {
                    cache.by_id.remove(id);
                }
                return Err(error);
            }
        };
        if cache.by_id.len() >= CACHED_MAX {
            (cache.by_id, cache.ids) = Default::default();
        }
        let stale = cache.version != version;
        cache.ids.insert(tenant.name.clone(), tenant.id);
        cache.by_id.insert(tenant.id, Cached { tenant: tenant.clone(), read: MonoTime::now(), stale });
        Ok(tenant)
    }

    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Page<TenantRecord, String>> {
        self.0.store.list_tenants(after, limit).await
    }

    pub async fn create(&self, actor: &Actor, new: NewTenant) -> Result<TenantRecord> {
        self.0.store.create_tenant(actor, new).await
    }

    pub async fn update(&self, actor: &Actor, tenant: &TenantRef, change: TenantChange) -> Result<TenantRecord> {
        let changed = self.0.store.update_tenant(actor, tenant, change).await;
        self.0.hints.access_changed();
        changed
    }

    pub async fn suspend(&self, actor: &Actor, tenant: &TenantRef, cancel: bool) -> Result<TenantRecord> {
        let suspended = self.0.store.suspend_tenant(actor, tenant, cancel).await;
        self.0.hints.access_changed();
        suspended
    }

    pub async fn resume(&self, actor: &Actor, tenant: &TenantRef) -> Result<TenantRecord> {
        let resumed = self.0.store.resume_tenant(actor, tenant).await;
        self.0.hints.access_changed();
        resumed
    }

    pub async fn delete(&self, actor: &Actor, tenant: &TenantRef, force: bool) -> Result<TenantRecord> {
        let deleted = self.0.store.delete_tenant(actor, tenant, force).await;
        self.0.hints.access_changed();
        deleted
    }
}

impl Cache {
    fn fresh(&self, id: TenantId) -> Option<Arc<TenantRecord>> {
        let cached = self.by_id.get(&id).filter(|cached| !cached.stale)?;
        (MonoTime::now().since(cached.read) < CACHED_FOR).then(|| cached.tenant.clone())
    }
}
