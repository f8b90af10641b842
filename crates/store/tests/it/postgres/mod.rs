//! The PostgreSQL keeper: the suite, and what is only true of a server that nodes share.

use std::{any::Any, sync::Arc};

use everytick_store::{Limits, Store, WallClock, conformance::server::Server};

async fn open(clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>) {
    let (store, database) = Server::shared().store(clock, limits).await;
    (store, Box::new(database))
}

mod conforms {
    everytick_store::conformance_suite!(crate::postgres::open, shared);
}
