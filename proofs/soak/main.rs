//! Soak tests from outside: the real binary, a real HTTP receiver, the real clock. `scripts/soak` builds both and runs this.
//!
//! `soak steady [JOBS] [SECONDS]`: jobs every second; checks that each tick is delivered once, none early; prints the lag.
//! `soak kill [JOBS] [TIMES] [SEED]`: the same with `kill -9` at random moments and a restart each time.
//! `soak edits [TIMES] [SEED]`: edits, pauses and deletes within 50 ms of a tick.
//! `soak takeover [JOBS] [LEASE] [EVERY]`: kills the only node of a cluster; another node takes over; prints how long it took.
//! `soak workers [RUNS] [WORKERS] [SEED]`: works through a queue while workers are killed at random.
//! `soak idle [WORKERS] [SECONDS]`: measures the cost of waiting workers, and how soon a new run starts.
//! `soak guard [JOBS]`: short benchmarks with bounds on ratios; fails when a figure drops as the number of jobs grows.
//! `soak crowd [SECONDS]`: one healthy job beside list readers, a greedy job, idle connections and a dead DNS zone.
//! `soak rolling [JOBS] [LEASE]`: restarts three nodes one after another; prints the longest lag.

mod cluster;
mod crowd;
mod edits;
mod guard;
mod kill;
mod ledger;
mod server;
mod sink;
mod steady;
mod workers;

#[path = "../common/mod.rs"]
mod common;

pub(crate) use common::{Random, binary, create_jobs, instant, now_ms, rfc3339, sleep_until_ms};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    match args.first().map(String::as_str) {
        Some("steady") => steady::run(number(1, 1_000)?, number(2, 60)?).await,
        Some("kill") => kill::run(number(1, 1_000)?, number(2, 30)?, number(3, 1)?).await,
        Some("edits") => edits::run(number(1, 500)?, number(2, 1)?).await,
        Some("takeover") => cluster::takeover(number(1, 200)?, number(2, 5)?, number(3, 1)?).await,
        Some("rolling") => cluster::rolling(number(1, 200)?, number(2, 5)?).await,
        Some("workers") => workers::killed(number(1, 5_000)?, number(2, 10)?, number(3, 1)?).await,
        Some("idle") => workers::idle(number(1, 1_000)?, number(2, 30)?).await,
        Some("crowd") => crowd::run(number(1, 30)?).await,
        Some("guard") => guard::run(number(1, 40_000)?).await,
        Some("worker") => workers::worker(args.get(1).map_or("", String::as_str)).await,
        _ => anyhow::bail!(
            "usage: soak steady [JOBS] [SECONDS], kill [JOBS] [TIMES] [SEED], edits [TIMES] [SEED], takeover [JOBS] [LEASE] [EVERY], \
             rolling [JOBS] [LEASE], workers [RUNS] [WORKERS] [SEED], idle [WORKERS] [SECONDS], crowd [SECONDS] or guard [JOBS]"
        ),
    }
}

/// Prints each check, and remembers whether all passed.
pub(crate) struct Checks(bool);

impl Checks {
    pub(crate) fn new() -> Self {
        Self(true)
    }
    pub(crate) fn expect(&mut self, what: &str, is: impl PartialEq<u64> + std::fmt::Display, should_be: u64) {
        let right = is == should_be;
        self.0 &= right;
        println!("  {what}: {is}{}", if right { String::new() } else { format!("   WRONG: expected {should_be}") });
    }
    pub(crate) fn end(self) -> anyhow::Result<()> {
        if self.0 {
            println!("  all right")
        }
        anyhow::ensure!(self.0, "some checks failed");
        Ok(())
    }
}
