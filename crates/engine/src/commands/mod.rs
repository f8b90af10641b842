//! Requests of users and workers. Each command is one transaction of the store, followed by a hint to the loops.

mod backfill;
mod calendars;
mod claim_work;
mod create_jobs;
mod edit_job;
mod flows;
mod redrive;
mod report_result;
mod secrets;
mod trigger;

use std::sync::Arc;

use everytick_domain::ids;
use everytick_store::{Store, SystemClock, WallClock as _};

use crate::{
    Access, Hints, Queries, Tenants,
    claim::{asked::AskedQueues, waiters::ClaimWaiters},
    live::LiveLogs,
    secrets::Vault,
};

pub use backfill::Backfill;
pub use claim_work::{Work, WorkRequest};
pub use secrets::SecretRequest;
pub use trigger::Trigger;

pub use crate::settle::report::Report;

/// A source of randomness, passed in so that a simulator can replace it.
pub trait Entropy: Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]);

    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }
}

/// The commands of one process.
#[derive(Clone)]
pub struct Commands {
    store: Arc<dyn Store>,
    queries: Queries,
    hints: Hints,
    entropy: Arc<dyn Entropy>,
    live: LiveLogs,
    waiters: ClaimWaiters,
    asked: AskedQueues,
    access: Access,
    tenants: Tenants,
    vault: Option<Vault>,
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

impl Commands {
    #[must_use]
    pub fn new(store: Arc<dyn Store>, hints: Hints, entropy: Arc<dyn Entropy>, live: LiveLogs) -> Self {
        let (waiters, asked) = (ClaimWaiters::default(), AskedQueues::default());
        let access = Access::new(store.clone(), hints.clone(), entropy.clone());
        let (tenants, queries) = (Tenants::new(store.clone(), hints.clone()), Queries::new(store.clone()));
        Self { queries, store, hints, entropy, live, waiters, asked, access, tenants, vault: None }
    }

    /// The queries on the same store.
    #[must_use]
    pub fn queries(&self) -> &Queries {
        &self.queries
    }

    /// The credentials of callers.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }

    #[must_use]
    pub const fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// A new id for a request that came without an id.
    #[must_use]
    pub fn new_request_id(&self) -> String {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        ids::request_id(SystemClock.now(), random)
    }

    #[must_use]
    pub fn live(&self) -> &LiveLogs {
        &self.live
    }
}
