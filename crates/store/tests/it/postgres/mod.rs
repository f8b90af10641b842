//! The PostgreSQL store: the conformance suite, and properties of a shared server.

mod api_handle;
mod backfills;
mod backlog;
mod backlog_guards;
mod calendar_races;
mod cancel_races;
mod compact;
mod day_guards;
mod days;
mod flows;
mod guards;
mod lease_guards;
mod lock_guards;
mod locks;
mod moves;
mod narrow_locks;
mod old_claims;
mod plans;
mod queues;
mod races;
mod schema;
mod secrets;
mod server;
mod silence;
mod stopped;
mod tenants;
mod tokens;
mod turns;
mod unreadable;

use std::{any::Any, sync::Arc};

use everytick_store::{
    Limits, PostgresStore, Store, WallClock,
    conformance::{
        Bench, LIMITS,
        server::{Database, Server},
    },
};
use sqlx::{Connection, PgConnection};

async fn open(clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>) {
    let (store, database) = Server::shared().store(clock, limits).await;
    (store, Box::new(database))
}

mod conforms {
    everytick_store::conformance_suite!(crate::postgres::open, shared);
}

/// A bench on a database to which the test can connect.
struct Opened {
    bench: Bench,
    store: Arc<PostgresStore>,
    database: Database,
}

async fn bench() -> Opened {
    bench_with(LIMITS).await
}

async fn bench_with(limits: Limits) -> Opened {
    let mut opened = None;
    let bench = Bench::open(async |clock, _| {
        let (store, database) = Server::shared().store(clock, limits).await;
        opened = Some((store.clone(), database));
        let store: Arc<dyn Store> = store;
        (store, Box::new(()) as Box<dyn Any + Send + Sync>)
    })
    .await;
    let (store, database) = opened.unwrap();
    Opened { bench, store, database }
}

impl Opened {
    /// A connection outside the store, for locks and checks.
    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.database.url).await.unwrap()
    }
}
