//! `bench cron`: measures computed next ticks per second on one core, by kind of expression, with time zones.

use std::{hint::black_box, time::Duration};

use clap::Args;
use everytick_domain::{
    schedule::{Fold, Gap, Schedule, ScheduleSpec},
    time::DbTime,
};

use super::{report::Report, rig::clock};
use crate::failure::Failure;

pub(super) const AFTER_HELP: &str = "\
Examples:
  everytick bench cron
  everytick bench cron --expr '0 9 * * MON-FRI' --tz America/New_York

Each call finds the tick after the previous one, from November 2026 to the end of 2089, then starts again.
`rate` is the rate of the slowest common expression, `sparse_rate` of the slowest sparse expression.";

/// Measured time per expression.
const TIME: Duration = Duration::from_millis(300);
/// Calls between two reads of the clock.
const CALLS: u32 = 1_000;
const FROM: &str = "2026-11-16T00:00:00Z";
const UNTIL: &str = "2090-01-01T00:00:00Z";

const COMMON: [(&str, &str); 8] = [
    ("* * * * *", "UTC"),
    ("* * * * *", "America/New_York"),
    ("*/15 * * * *", "Europe/Paris"),
    ("0 * * * *", "Asia/Kolkata"),
    ("30 2 * * *", "America/New_York"),
    ("0 9 * * MON-FRI", "Europe/London"),
    ("0 0 1 * *", "Australia/Sydney"),
    ("*/10 * * * * *", "America/Sao_Paulo"),
];
const SPARSE: [(&str, &str); 6] = [
    ("0 0 29 2 *", "America/New_York"),
    ("0 0 1 1 *", "Europe/Paris"),
    ("0 12 13 * +FRI", "Asia/Tokyo"),
    ("30 1 L 2 *", "Australia/Lord_Howe"),
    ("0 0 * 6 MON#5", "Europe/London"),
    ("15 3 LW 12 *", "America/Los_Angeles"),
];

#[derive(Debug, Args)]
pub(crate) struct CronFlags {
    /// Measure only this expression
    #[arg(long, value_name = "EXPR")]
    expr: Option<String>,
    /// Evaluate the expression in this time zone [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "expr")]
    tz: Option<String>,
}

impl CronFlags {
    pub(super) fn run(&self) -> anyhow::Result<Report> {
        if let Some(expr) = &self.expr {
            let zone = self.tz.as_deref().unwrap_or("UTC");
            let report = Report::new("cron").text("cron", expr).text("timezone", zone);
            return Ok(report.rate("rate", rate(expr, zone)?));
        }
        let (mut kinds, mut slowest) = (Vec::new(), [f64::INFINITY; 2]);
        for (index, (kind, list)) in [("common", &COMMON[..]), ("sparse", &SPARSE[..])].into_iter().enumerate() {
            for (expr, zone) in list {
                let rate = rate(expr, zone)?;
                slowest[index] = slowest[index].min(rate);
                let item = Report::item().text("kind", kind).text("cron", expr).text("timezone", zone);
                kinds.push(item.rate("rate", rate));
            }
        }
        let report = Report::new("cron")
            .text("of", "the slowest expression of each kind")
            .rate("rate", slowest[0])
            .rate("sparse_rate", slowest[1]);
        Ok(report.list("kinds", kinds))
    }
}

fn rate(expr: &str, zone: &str) -> anyhow::Result<f64> {
    let wrong = |invalid: Vec<everytick_domain::invalid::Invalid>| {
        Failure::usage(invalid.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let timing = ScheduleSpec::cron(expr, Some(zone), Gap::default(), Fold::default(), "bench").map_err(wrong)?;
    let schedule = Schedule::compile(&timing.into()).map_err(wrong)?;
    let (from, until) = (instant(FROM)?, instant(UNTIL)?);
    let (begun, mut calls, mut at) = (clock(), 0_u64, from);
    while begun.elapsed() < TIME {
        for _ in 0..CALLS {
            at = match black_box(&schedule).next_after(at) {
                Some(next) if next < until => next,
                _ => from,
            };
        }
        calls += u64::from(CALLS);
    }
    black_box(at);
    Ok(calls as f64 / begun.elapsed().as_secs_f64())
}

fn instant(text: &str) -> anyhow::Result<DbTime> {
    text.parse().map_err(|error| anyhow::anyhow!("{text}: {error}"))
}
