//! `bench takeover`: starts a node, which acquires all partitions. Measures the time to its first tick, and until all jobs
//! that are due soon are in memory.

use std::{sync::Arc, time::Duration};

use clap::Args;
use everytick_domain::time::DbTime;
use everytick_engine::TokioSpawn;

use super::{
    JOBS_MAX,
    database::BenchDatabase,
    jobs::{BenchTarget, Maker},
    progress::Progress,
    report::Report,
    rig::{self, NodeSetup},
    watch::Lags,
};

pub(super) const AFTER_HELP: &str = "\
Examples:
  everytick bench takeover --jobs 1000000 --database-url postgres://everytick@db/everytick

One job in a hundred fires every 1 to 10 seconds; some of their ticks are due when the node starts.
The others are daily to yearly. `first_tick_ms` is the time from the start of the node to the first call of a
target, `loaded_ms` the time until all jobs that are due within a minute are in memory.";

/// One job in this many fires every 1 to 10 seconds.
const OFTEN_IN: u64 = 100;
/// The benchmark fails if no tick fires within this time.
const FIRST_TICK_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct TakeoverFlags {
    /// Register this many jobs, 100 to 100,000,000
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=JOBS_MAX))]
    jobs: u64,
}

impl TakeoverFlags {
    pub(super) fn run(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<Vec<Report>> {
        let limit = rig::measure(self.prepare(database, progress))?;
        let (first, loaded) = rig::measure(self.measure(database, progress))?;
        let report = Report::new("takeover").text("database", database.kind()).count("jobs", self.jobs);
        let report = report.millis("first_tick_ms", first.as_secs_f64() * 1_000.0);
        Ok(vec![report.millis("loaded_ms", loaded.as_secs_f64() * 1_000.0).rate("limit", limit)])
    }

    async fn prepare(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<f64> {
        let open = database.open().await?;
        let mut maker = Maker::new(BenchTarget::Noop)?;
        let often = self.jobs / OFTEN_IN;
        rig::register(&open, self.jobs - often, progress, |_, now| maker.idle(now)).await?;
        progress.begin("tidying up", 1);
        open.probe.tidy().await?;
        progress.begin("measuring the limit", 1);
        let limit = rig::limit(&open).await?;
        let begin = open.store.now().await?;
        rig::register(&open, often, progress, |_, _| maker.frequent(begin)).await?;
        Ok(limit)
    }

    async fn measure(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<(Duration, Duration)> {
        let open = database.open().await?;
        progress.begin("starting a node", 1);
        let lags = Lags::new(&open, DbTime::EPOCH).await?;
        let begun = rig::clock();
        let engine = rig::start(&open, lags.clone(), Arc::new(TokioSpawn), NodeSetup::default()).await?;
        let first = async {
            while lags.count() == 0 {
                anyhow::ensure!(begun.elapsed() < FIRST_TICK_WITHIN, "no tick fired within {FIRST_TICK_WITHIN:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(begun.elapsed())
        };
        let loaded = async {
            engine.loaded().await;
            Ok(begun.elapsed())
        };
        tokio::try_join!(first, loaded)
    }
}
