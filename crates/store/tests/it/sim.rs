//! The simulated store, without faults.

use std::{any::Any, sync::Arc};

use everytick_domain::partition::PARTITIONS;
use everytick_sim::SimStore;
use everytick_store::{Limits, Store, WallClock};

async fn open(clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>) {
    (Arc::new(SimStore::new(clock, limits)), Box::new(()))
}

async fn open_shared(clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>) {
    (Arc::new(SimStore::shared(clock, limits, PARTITIONS)), Box::new(()))
}

mod conforms {
    everytick_store::conformance_suite!(crate::sim::open, alone);
}

mod conforms_shared {
    everytick_store::conformance_suite!(crate::sim::open_shared, shared);
}
