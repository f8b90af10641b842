//! `bench lag` and `bench burst`: measure the time from tick to dispatch among idle jobs. `lag` measures a steady rate, and
//! `burst` many jobs that are due at one instant.

use std::{sync::Arc, time::Duration};

use clap::Args;
use everytick_domain::time::{DbTime, Span};
use everytick_engine::TokioSpawn;

use tokio::task::JoinHandle;

use super::{
    database::{BenchDatabase, Open},
    guesses::{self, Answers},
    jobs::{BenchTarget, Maker},
    progress::Progress,
    report::Report,
    rig::{self, NodeSetup},
    watch::Lags,
};

pub(super) const LAG_AFTER_HELP: &str = "\
Examples:
  everytick bench lag --rate 1000 --jobs 1000000 --database-url postgres://everytick@db/everytick
  everytick bench lag --rate 1000,5000 --jobs 1000000 --database-url postgres://everytick@db/everytick
  everytick bench lag --rate 1000 --aligned
  everytick bench lag --rate 1000 --wrong-tokens 10000

Ticks are spread evenly over each second. With --aligned, all ticks of a second are due at its start, like those of cron
expressions. The figures are the times from tick to the call of the target, in milliseconds. With --wrong-tokens, the node also serves the API, and requests
with wrong tokens from one address are spread over the measurement; compare `p99_ms` with that of a run without it.";

pub(super) const BURST_AFTER_HELP: &str = "\
Examples:
  everytick bench burst --due 10000 --jobs 1000000 --database-url postgres://everytick@db/everytick
  everytick bench burst --due 1000,10000,100000 --jobs 1000000 --database-url postgres://everytick@db/everytick

All jobs of a burst are due at one instant. `max_ms` is the time from that instant to the last call of a target.";

/// Interval of each job of the steady rate.
const PERIOD: Span = Span::seconds(10);
/// Warm-up time, which is not counted.
const WARM: Span = Span::seconds(5);
/// The benchmark fails if a burst is not dispatched within this time.
const BURST_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct LagFlags {
    /// Measure at this many ticks per second, up to 100,000; several rates are measured one after the other
    #[arg(long, value_name = "R", default_value = "1000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Vec<u64>,
    /// Register this many idle jobs as well
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    jobs: u64,
    /// Make all ticks of a second due at its start
    #[arg(long)]
    aligned: bool,
    /// Send this many requests with wrong tokens meanwhile, up to 1,000,000
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    wrong_tokens: u64,
    /// Measure for this many seconds, up to 600
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Allow at most this many runs in progress, up to 10,000
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slots: u64,
}

#[derive(Debug, Args)]
pub(crate) struct BurstFlags {
    /// Make this many jobs due at one instant, up to 1,000,000; several bursts are measured one after the other
    #[arg(long, value_name = "K", default_value = "1000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    due: Vec<u64>,
    /// Register this many idle jobs as well
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    jobs: u64,
    /// Allow at most this many runs in progress, up to 10,000
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slots: u64,
}

impl LagFlags {
    pub(super) fn run(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<Vec<Report>> {
        let mut maker = Maker::new(BenchTarget::Noop)?;
        rig::measure(register_idle(database, progress, &mut maker, self.jobs))?;
        let one = |rate: &u64| {
            let report = rig::measure(self.measure(database, progress, &mut maker, *rate))?;
            rig::delete_runs(database)?;
            Ok(report)
        };
        self.rate.iter().map(one).collect()
    }

    async fn measure(
        &self,
        database: &BenchDatabase,
        progress: &Progress,
        maker: &mut Maker,
        rate: u64,
    ) -> anyhow::Result<Report> {
        let open = database.open().await?;
        progress.begin("measuring the limit", 1);
        let limit = rig::limit(&open).await?;
        let firing = rate * PERIOD.as_millis() / 1_000;
        let begin = rig::second_ahead(&open, ahead(firing)).await?;
        let first = |n: u64| {
            let millis = n * PERIOD.as_millis() / firing;
            begin.plus(Span::millis(if self.aligned { millis - millis % 1_000 } else { millis }))
        };
        rig::register(&open, firing, progress, |n, _| maker.every(PERIOD, first(n))).await?;
        let counted = begin.plus(WARM);
        let lags = start_node(&open, counted, self.slots, progress).await?;
        progress.begin("dispatching", 1);
        let guesses = self.send_guesses(&open, counted).await?;
        // One more second, for runs that are not dispatched yet.
        rig::sleep_until(&open, counted.plus(Span::seconds(self.seconds + 1))).await?;
        let seen = lags.count();
        anyhow::ensure!(
            seen >= rate * self.seconds / 2,
            "only {seen} runs were dispatched: this machine cannot reach the rate; use a lower --rate"
        );
        let report = Report::new("lag").text("database", database.kind()).count("jobs", self.jobs + firing);
        let report = match guesses {
            Some(guesses) => {
                let answers = guesses.await??;
                let report = report.count("wrong_tokens", self.wrong_tokens);
                report.count("answers_401", answers.unauthenticated).count("answers_429", answers.limited)
            }
            None => report,
        };
        let report = report.count("due_per_second", rate).flag("aligned", self.aligned).count("slots", self.slots);
        Ok(figures(report, &lags).rate("rate", rate as f64).rate("limit", limit).ratio("ratio", rate as f64 / limit))
    }
}

impl LagFlags {
    /// Sends the wrong tokens while the lag is measured.
    async fn send_guesses(
        &self,
        open: &Open,
        counted: DbTime,
    ) -> anyhow::Result<Option<JoinHandle<anyhow::Result<Answers>>>> {
        if self.wrong_tokens == 0 {
            return Ok(None);
        }
        let server = guesses::serve(open).await?;
        let (open, count, within) = (open.clone(), self.wrong_tokens, Duration::from_secs(self.seconds));
        Ok(Some(tokio::spawn(async move {
            rig::sleep_until(&open, counted).await?;
            guesses::send(&server, count, within).await
        })))
    }
}

impl BurstFlags {
    pub(super) fn run(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<Vec<Report>> {
        let mut maker = Maker::new(BenchTarget::Noop)?;
        rig::measure(register_idle(database, progress, &mut maker, self.jobs))?;
        let one = |due: &u64| {
            let report = rig::measure(self.measure(database, progress, &mut maker, *due))?;
            rig::delete_runs(database)?;
            Ok(report)
        };
        self.due.iter().map(one).collect()
    }

    async fn measure(
        &self,
        database: &BenchDatabase,
        progress: &Progress,
        maker: &mut Maker,
        due: u64,
    ) -> anyhow::Result<Report> {
        let open = database.open().await?;
        progress.begin("measuring the limit", 1);
        let limit = rig::limit(&open).await?;
        let at = rig::second_ahead(&open, ahead(due)).await?;
        rig::register(&open, due, progress, |_, _| maker.firing_at(at)).await?;
        let lags = start_node(&open, at, self.slots, progress).await?;
        progress.begin("dispatching", due);
        let begun = rig::clock();
        while lags.count() < due && begun.elapsed() < BURST_WITHIN {
            tokio::time::sleep(Duration::from_millis(50)).await;
            progress.at(lags.count());
        }
        let seen = lags.count();
        anyhow::ensure!(seen == due, "{seen} of {due} runs were dispatched");
        let report = Report::new("burst").text("database", database.kind()).count("jobs", self.jobs + due);
        let report = figures(report.count("due", due).count("slots", self.slots), &lags);
        let rate = due as f64 * 1_000.0 / lags.max().max(1.0);
        Ok(report.rate("rate", rate).rate("limit", limit).ratio("ratio", rate / limit))
    }
}

async fn register_idle(
    database: &BenchDatabase,
    progress: &Progress,
    maker: &mut Maker,
    jobs: u64,
) -> anyhow::Result<()> {
    let open = database.open().await?;
    rig::register(&open, jobs, progress, |_, now| maker.idle(now)).await?;
    progress.begin("tidying up", 1);
    Ok(open.probe.tidy().await?)
}

/// Enough time to register this many jobs, and for a node to load them.
fn ahead(jobs: u64) -> Duration {
    Duration::from_secs_f64(4.0 + jobs as f64 / 4_000.0)
}

/// Starts a node and waits until it has loaded its jobs. Fails if they are not loaded before `begin`.
async fn start_node(open: &Open, begin: DbTime, slots: u64, progress: &Progress) -> anyhow::Result<Arc<Lags>> {
    progress.begin("loading", 1);
    let lags = Lags::new(open, begin).await?;
    let setup = NodeSetup { slots: slots as usize, ..NodeSetup::default() };
    let engine = rig::start(open, lags.clone(), Arc::new(TokioSpawn), setup).await?;
    engine.loaded().await;
    let now = open.store.now().await?;
    anyhow::ensure!(
        now < begin,
        "the machine is too slow: the jobs were not loaded before they were due; use fewer jobs"
    );
    Ok(lags)
}

fn figures(report: Report, lags: &Lags) -> Report {
    report.millis("p50_ms", lags.quantile(0.5)).millis("p99_ms", lags.quantile(0.99)).millis("max_ms", lags.max())
}
