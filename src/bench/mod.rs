//! `everytick bench`: measures the speed of this release on the user's machine and database. Each benchmark works in its own
//! schema or file. It first measures the rate of plain inserts there (the limit). The speed differs more between machines,
//! and between two moments on one machine, than between releases.

mod child;
mod cron;
mod database;
mod guesses;
mod interrupt;
mod jobs;
mod lag;
mod life;
mod progress;
mod register;
mod report;
mod rig;
mod sink;
mod takeover;
mod tick;
mod watch;

use clap::{Args, Subcommand};

use self::{database::BenchDatabase, progress::Progress, report::Report};
use crate::{
    config::{DatabaseUrl, File},
    output::{self, Output},
};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure recorded ticks per second
    #[command(after_help = tick::AFTER_HELP)]
    Tick(WithDatabase<tick::TickFlags>),
    /// Measure whole runs per second: tick, claim, dispatch, settle
    #[command(after_help = life::AFTER_HELP)]
    Life(WithDatabase<life::LifeFlags>),
    /// Measure the time from tick to dispatch at a steady rate
    #[command(after_help = lag::LAG_AFTER_HELP)]
    Lag(WithDatabase<lag::LagFlags>),
    /// Measure the time from tick to dispatch for many jobs due at one instant
    #[command(after_help = lag::BURST_AFTER_HELP)]
    Burst(WithDatabase<lag::BurstFlags>),
    /// Measure registered jobs per second, and their size on disk and in memory
    #[command(after_help = register::AFTER_HELP)]
    Register(WithDatabase<register::RegisterFlags>),
    /// Measure the time from the start of a node to its first tick
    #[command(after_help = takeover::AFTER_HELP)]
    Takeover(WithDatabase<takeover::TakeoverFlags>),
    /// Measure computed next ticks per second, by kind of expression; needs no database
    #[command(after_help = cron::AFTER_HELP)]
    Cron(cron::CronFlags),
    /// Answer webhooks for `bench life`, until stdin is closed
    #[command(hide = true, after_help = sink::AFTER_HELP)]
    Sink(sink::SinkFlags),
}

/// More jobs than this are probably a typing error and would fill the disk.
const JOBS_MAX: u64 = 100_000_000;

/// The flags of a benchmark that needs a database.
#[derive(Debug, Args)]
pub(crate) struct WithDatabase<F: Args> {
    /// Measure on this database: sqlite:<file> or postgres://...; creates its own file or schema there and removes it at the end
    /// [default: a SQLite file in the current directory]
    #[arg(long, env = "EVERYTICK_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    #[command(flatten)]
    flags: F,
}

impl BenchCommand {
    pub(crate) fn run(self, file: File, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Tick(bench) => bench.run(file, out, tick::TickFlags::run),
            Self::Life(bench) => bench.run(file, out, life::LifeFlags::run),
            Self::Lag(bench) => bench.run(file, out, lag::LagFlags::run),
            Self::Burst(bench) => bench.run(file, out, lag::BurstFlags::run),
            Self::Register(bench) => bench.run(file, out, register::RegisterFlags::run),
            Self::Takeover(bench) => bench.run(file, out, takeover::TakeoverFlags::run),
            Self::Cron(flags) => flags.run()?.print(out),
            Self::Sink(flags) => flags.run(),
        }
    }
}

impl<F: Args> WithDatabase<F> {
    fn run(
        self,
        file: File,
        out: Output,
        bench: impl Fn(&F, &BenchDatabase, &Progress) -> anyhow::Result<Vec<Report>>,
    ) -> anyhow::Result<()> {
        if cfg!(debug_assertions) {
            output::note_line("this is a debug build: its figures mean little; build with --release");
        }
        let database = self.database_url.or(file.database_url).map(|text| DatabaseUrl::read(&text)).transpose()?;
        let database = rig::measure(BenchDatabase::create(database))?;
        let progress = Progress::new();
        let reports = bench(&self.flags, &database, &progress);
        progress.end();
        let removed = rig::finish(database.remove());
        for report in reports? {
            report.print(out)?;
        }
        removed
    }
}
