//! The conformance suite: one function per rule that every store must follow. A store's tests open it empty, and
//! [`conformance_suite!`] makes a test of each rule. Rules read and write only through [`Store`](crate::Store). Each file
//! lists its rules in a macro.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, reason = "these are tests")]

mod bench;
mod values;

pub mod accepted;
pub mod alone;
pub mod backfills;
pub mod backlogs;
pub mod calendars;
pub mod cancels;
pub mod claims;
pub mod creates;
pub mod cursors;
pub mod edits;
pub mod facts;
pub mod flow_commands;
pub mod flow_definitions;
pub mod flow_payloads;
pub mod flow_pruning;
pub mod flows;
pub mod homes;
pub mod isolation;
pub mod lists;
pub mod loads;
pub mod nodes;
pub mod old_claims;
pub mod partitions;
pub mod pruning;
pub mod queue_limits;
pub mod queue_previous;
pub mod queues;
pub mod ranges;
pub mod reads;
pub mod redrives;
pub mod repairs;
pub mod requests;
pub mod run_facts;
pub mod secrets;
pub mod server;
pub mod settles;
pub mod sharing;
pub mod tenants;
pub mod ticks;
pub mod tokens;
pub mod worker_claims;

pub use bench::Bench;
pub use values::*;

/// Makes a `#[test]` of every rule, for a store with one process (`alone`) or shared by nodes (`shared`). `$open` is the path
/// of an `async fn(Arc<dyn WallClock>, Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>)`. It returns an empty store and
/// a value that must live as long as the store.
#[macro_export]
macro_rules! conformance_suite {
    // A store that one process uses alone.
    ($open:path, alone) => {
        $crate::conformance_alone! { $open }
        $crate::conformance_suite! { @every $open }
    };
    // A store that several nodes share.
    ($open:path, shared) => {
        $crate::conformance_sharing! { $open }
        $crate::conformance_homes! { $open }
        $crate::conformance_suite! { @every $open }
    };
    (@every $open:path) => {
        $crate::conformance_nodes! { $open }
        $crate::conformance_partitions! { $open }
        $crate::conformance_ticks! { $open }
        $crate::conformance_loads! { $open }
        $crate::conformance_ranges! { $open }
        $crate::conformance_cursors! { $open }
        $crate::conformance_repairs! { $open }
        $crate::conformance_claims! { $open }
        $crate::conformance_old_claims! { $open }
        $crate::conformance_accepted! { $open }
        $crate::conformance_settles! { $open }
        $crate::conformance_queues! { $open }
        $crate::conformance_queue_limits! { $open }
        $crate::conformance_worker_claims! { $open }
        $crate::conformance_queue_previous! { $open }
        $crate::conformance_creates! { $open }
        $crate::conformance_edits! { $open }
        $crate::conformance_calendars! { $open }
        $crate::conformance_requests! { $open }
        $crate::conformance_isolation! { $open }
        $crate::conformance_tenants! { $open }
        $crate::conformance_tokens! { $open }
        $crate::conformance_secrets! { $open }
        $crate::conformance_cancels! { $open }
        $crate::conformance_backlogs! { $open }
        $crate::conformance_redrives! { $open }
        $crate::conformance_backfills! { $open }
        $crate::conformance_facts! { $open }
        $crate::conformance_run_facts! { $open }
        $crate::conformance_reads! { $open }
        $crate::conformance_lists! { $open }
        $crate::conformance_flows! { $open }
        $crate::conformance_flow_pruning! { $open }
        $crate::conformance_flow_commands! { $open }
        $crate::conformance_flow_payloads! { $open }
        $crate::conformance_flow_definitions! { $open }
        $crate::conformance_pruning! { $open }
    };
}

/// Makes a module with a `#[test]` of each rule of one file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_group {
    ($open:path, $group:ident: $($rule:ident),* $(,)?) => {
        mod $group {
            $(
                #[test]
                fn $rule() {
                    $crate::conformance::run_rule(
                        || Box::pin($crate::conformance::Bench::open($open)),
                        |bench| Box::pin($crate::conformance::$group::$rule(bench)),
                    );
                }
            )*
        }
    };
}

type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;

/// Runs one rule against an opened store. Not generic, so it is compiled once and not once per rule and store, which took
/// minutes.
pub fn run_rule(open: fn() -> Boxed<'static, Bench>, rule: for<'a> fn(&'a Bench) -> Boxed<'a, ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bench = open().await;
        rule(&bench).await;
    });
}
