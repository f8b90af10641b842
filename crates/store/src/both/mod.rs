// The code that is equal for both databases. `postgres/mod.rs` and `sqlite/mod.rs` include this file, so each database
// has these modules. `lib.rs` names it too, for rustfmt only.

mod asked;
mod backfill;
mod calendars;
mod cancel;
mod column;
mod explain;
mod flows;
mod history;
pub(crate) mod job_row;
mod jobs;
mod lost;
mod marks;
mod node;
mod open_runs;
mod prune;
mod range;
mod read;
mod repair;
mod secrets;
mod store;
mod tenants;
mod tokens;
mod tx;
mod unreadable;
