//! The domain's integration tests, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used)] // test helpers may panic

mod clocks;
mod describing;
mod dialect;
mod differential;
mod exercise;
mod fuzz;
mod judged;
mod long_gaps;
mod oracle;
mod secrets;
mod specs;

use everytick_domain::{
    invalid::Invalid,
    schedule::{Fold, Gap, Schedule, ScheduleSpec},
    time::DbTime,
};

fn cron(expression: &str, zone: &str) -> Result<Schedule, Vec<Invalid>> {
    cron_with(expression, zone, Gap::Shift, Fold::First)
}

fn cron_with(expression: &str, zone: &str, gap: Gap, fold: Fold) -> Result<Schedule, Vec<Invalid>> {
    Schedule::compile(&ScheduleSpec::cron(expression, Some(zone), gap, fold, "a job")?.into())
}

fn at(text: &str) -> DbTime {
    text.parse().unwrap()
}

fn next(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
    std::iter::successors(schedule.next_after(at(after)), |tick| schedule.next_after(*tick))
        .take(count)
        .map(|tick| tick.to_string())
        .collect()
}
