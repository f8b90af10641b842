//! Runs one node: load, decide, commit. [`loops`] act on time (ticks, leases, retries); [`commands`] act on requests of users
//! and workers. The two communicate only through the database tables. [`Hints`] between them only shorten a wait.

mod clock;
pub mod commands;
mod engine;
mod hints;
mod holding;
pub mod live;
mod loops;
mod memory;
mod meters;
mod outage;
mod pulse;
mod room;
mod settings;
mod spawn;

pub use engine::{Engine, Parts};
pub use everytick_store as store;
pub use hints::Hints;
pub use holding::differences;
pub use settings::Settings;
pub use spawn::{Spawn, TokioSpawn};
