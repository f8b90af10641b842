//! `bench tick`: measures recorded ticks per second through the real scheduler: timers, cron evaluation, the recording
//! statement with its checks, and cursors raised in the background. Runs are inserted already claimed and are not delivered.

use std::time::Duration;

use clap::Args;
use everytick_domain::time::Span;

use super::{
    JOBS_MAX,
    database::BenchDatabase,
    jobs::{BenchTarget, Maker},
    progress::Progress,
    report::Report,
    rig::{self, NodeSetup},
    watch::{CountingSpawn, NoopTarget},
};
use crate::failure::Failure;

pub(super) const AFTER_HELP: &str = "\
Examples:
  everytick bench tick --jobs 100000
  everytick bench tick --jobs 1000000 --from 10000 --database-url postgres://everytick@db/everytick
  everytick bench tick --jobs 1000000 --sparse --database-url postgres://everytick@db/everytick

Up to 100,000 of the jobs fire every 1 to 10 seconds, or once in the measured time. With --sparse each firing job
fires once, so that every tick also raises a cursor. The other jobs are daily to yearly. `rate` is recorded ticks per
second of work; `busy` is the working part of the measured time. If `busy` is small, the rate means little.
`limit` is the rate of plain inserts of the same rows on this machine and database just before; `ratio` is
`rate` / `limit`.";

/// Limit of jobs that fire in the measured time.
const OFTEN_MAX: u64 = 100_000;
const SPARSE_A_SECOND_MAX: u64 = 60_000;
/// One firing job in this many fires once.
const ONCE_IN: u64 = 5;
/// The first 3 seconds are warm-up and not counted. Cursors are raised from the sixth second on.
const WARM: usize = 3;
/// Longer than the measured time, so that no renewal happens in it. A renewal compares all claims, and this benchmark never settles
/// a run, so the comparison would distort the result.
const LEASE: Span = Span::minutes(10);

#[derive(Debug, Args)]
pub(crate) struct TickFlags {
    /// Register this many jobs, 1,000 to 100,000,000
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=JOBS_MAX))]
    jobs: u64,
    /// Measure first with this many jobs, and report `growth`: the second rate divided by the first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=JOBS_MAX))]
    from: Option<u64>,
    /// Let each firing job fire once
    #[arg(long)]
    sparse: bool,
    /// Keep a snapshot open in another session
    #[arg(long)]
    snapshot: bool,
    /// Measure for this many seconds, 4 to 40
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(4..=40))]
    seconds: u64,
}

struct Measured {
    limit: f64,
    rate: f64,
    busy: f64,
}

impl TickFlags {
    pub(super) fn run(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<Vec<Report>> {
        if let Some(from) = self.from.filter(|from| *from > self.jobs) {
            let message =
                format!("--from: {from} is more than --jobs {}; the first measurement needs fewer jobs", self.jobs);
            return Err(Failure::usage(message).into());
        }
        let mut maker = Maker::new(BenchTarget::Noop)?;
        let mut registered = 0;
        let mut measured = Vec::new();
        for jobs in self.from.into_iter().chain([self.jobs]) {
            let result =
                rig::measure(self.measure(database, progress, &mut maker, jobs.saturating_sub(registered), jobs))?;
            registered = registered.max(jobs);
            if jobs != self.jobs {
                rig::delete_runs(database)?;
            }
            measured.push(result);
        }
        let Some(last) = measured.last() else { return Ok(Vec::new()) };
        let mut report = Report::new("tick")
            .text("database", database.kind())
            .count("jobs", self.jobs)
            .flag("sparse", self.sparse)
            .flag("snapshot", self.snapshot)
            .count("seconds", self.seconds)
            .rate("rate", last.rate)
            .rate("limit", last.limit)
            .ratio("ratio", last.rate / last.limit)
            .ratio("busy", last.busy);
        if let (Some(from), [first, _]) = (self.from, &measured[..]) {
            report = report
                .count("from", from)
                .rate("from_rate", first.rate)
                .ratio("from_ratio", first.rate / first.limit)
                .ratio("growth", last.rate / first.rate);
        }
        Ok(vec![report])
    }

    /// Registers `more` jobs, for a total of `jobs`, and measures.
    async fn measure(
        &self,
        database: &BenchDatabase,
        progress: &Progress,
        maker: &mut Maker,
        more: u64,
        jobs: u64,
    ) -> anyhow::Result<Measured> {
        let open = database.open().await?;
        let window = self.seconds + WARM as u64;
        // In a second measurement, at most the new jobs or half of all jobs fire, whichever is more.
        let fire = if self.sparse { SPARSE_A_SECOND_MAX * window } else { OFTEN_MAX }.min(jobs).min(more.max(jobs / 2));
        let idle = more.saturating_sub(fire);
        let idle_rate = rig::register(&open, idle, progress, |_, now| maker.idle(now)).await?;
        progress.begin("tidying up", 1);
        open.probe.tidy().await?;
        progress.begin("measuring the limit", 1);
        let limit = rig::limit(&open).await?;
        let snapshot = if self.snapshot { Some(open.probe.hold_snapshot().await?) } else { None };

        // Leave time to register the firing jobs, and for the node to load them.
        let registering = fire as f64 / idle_rate.min(10_000.0);
        let ahead = Duration::from_secs_f64(4.0 + registering * 1.3 + fire as f64 / 20_000.0);
        let begin = rig::second_ahead(&open, ahead).await?;
        let begin_at = rig::clock() + Duration::from(begin.since(open.store.now().await?));
        let seconds = |n: u64| begin.plus(Span::seconds(n % window));
        rig::register(&open, fire, progress, |n, _| {
            if self.sparse || n % ONCE_IN == 0 { maker.firing_at(seconds(n / ONCE_IN)) } else { maker.frequent(begin) }
        })
        .await?;
        let deliveries = CountingSpawn::from(begin_at);
        let setup = NodeSetup { slots: usize::MAX / 2, lease: LEASE };
        let engine = rig::start(&open, std::sync::Arc::new(NoopTarget), deliveries.clone(), setup).await?;
        deliveries.started();
        engine.loaded().await;
        anyhow::ensure!(
            rig::clock() < begin_at,
            "the machine is too slow: the jobs were not loaded before they were due; use fewer --jobs"
        );
        progress.begin("recording ticks", window);
        let mut behind = Vec::new();
        for second in 0..=window {
            let at = begin.plus(Span::seconds(second));
            rig::sleep_until(&open, at).await?;
            // If a due tick is not recorded yet, the node worked during the whole second that ends here.
            behind.push(engine.next_ticks(1).first().is_some_and(|(due, _)| *due < at));
            progress.at(second);
        }
        let (ticks, work) = deliveries.seen.between(WARM..window as usize, &behind[1..]);
        drop(snapshot);
        anyhow::ensure!(ticks > 0, "no tick was recorded");
        Ok(Measured { limit, rate: ticks as f64 / work.as_secs_f64(), busy: work.as_secs_f64() / self.seconds as f64 })
    }
}
