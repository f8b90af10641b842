//! The lag of ticks: of all, and of those that no fault touched.

use std::collections::HashMap;

use serde::Serialize;

use super::Findings;
use crate::{history::History, oracle::Kind};

/// A fault also touches ticks of this long before it, because their deliveries may be in progress.
const BEFORE_MS: i64 = 1_000;
/// The end of catching up is known only to within the interval between two samples. This margin covers that interval.
const AFTER_MS: i64 = 500;
const LATE_MS: i64 = 1_000;

#[derive(Default, Debug, Serialize)]
pub(crate) struct Lag {
    pub(crate) ticks: u64,
    pub(crate) p50_ms: i64,
    pub(crate) p99_ms: i64,
    pub(crate) max_ms: i64,
}

impl Lag {
    pub(super) fn of(mut lags: Vec<i64>) -> Self {
        lags.sort_unstable();
        let at = |share: usize| lags.get((lags.len() * share).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0);
        Self { ticks: lags.len() as u64, p50_ms: at(50), p99_ms: at(99), max_ms: at(100) }
    }
}

pub(super) fn measure(history: &History, findings: &mut Findings) {
    let middle = (history.offset.low + history.offset.high) / 2;
    let mut first: HashMap<&str, (&str, i64, i64)> = HashMap::new();
    for delivery in &history.deliveries {
        let seen =
            first.entry(&delivery.run).or_insert((&delivery.job, delivery.scheduled_at, delivery.arrived_at + middle));
        seen.2 = seen.2.min(delivery.arrived_at + middle);
    }
    // A one-shot job created just before its instant is late because of its creation.
    let shots: HashMap<&str, Option<i64>> = history
        .jobs
        .iter()
        .filter(|job| job.kind == Kind::Shot)
        .map(|job| (job.name.as_str(), job.created_at))
        .collect();
    let touched: Vec<(i64, i64)> = history
        .faults
        .iter()
        .filter(|fault| fault.touches)
        .map(|fault| (fault.began_at - BEFORE_MS, fault.caught_up_at.map_or(i64::MAX, |at| at + AFTER_MS)))
        .collect();
    let (mut all, mut untouched) = (Vec::new(), Vec::new());
    for (job, tick, arrived) in first.into_values() {
        let lag = arrived - tick;
        all.push(lag);
        let made_late = shots.get(job).is_some_and(|made| made.is_none_or(|made| made > tick - BEFORE_MS));
        let is_touched = touched.iter().any(|(from, to)| tick + middle.abs() >= *from && tick - middle.abs() <= *to);
        if !made_late && !is_touched {
            untouched.push(lag);
        }
    }
    findings.late = all.iter().filter(|lag| **lag > LATE_MS).count() as u64;
    findings.lag_all = Lag::of(all);
    findings.lag_untouched = Lag::of(untouched);
}
