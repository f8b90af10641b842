//! Checks a history. Pure: the same history has the same findings.

mod arrivals;
mod lag;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::History;

pub(crate) use lag::Lag;

/// How many instances of each kind are reported in full.
const INSTANCES_MAX: usize = 10;

/// Instances of one kind of breach.
#[derive(Default, Debug, Serialize)]
pub(crate) struct Breach {
    pub(crate) count: u64,
    pub(crate) first: Vec<String>,
}

impl Breach {
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < INSTANCES_MAX {
            self.first.push(what());
        }
    }
}

#[derive(Default, Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) jobs: u64,
    pub(crate) expected: u64,
    pub(crate) runs: u64,
    pub(crate) skips: BTreeMap<&'static str, u64>,
    pub(crate) states: BTreeMap<String, u64>,
    pub(crate) deliveries: u64,
    /// Deliveries of a run after its first.
    pub(crate) redelivered: u64,
    /// First deliveries more than 1 s after their tick.
    pub(crate) late: u64,
    pub(crate) lag_untouched: Lag,
    pub(crate) lag_all: Lag,
    pub(crate) stale_refused: u64,
    pub(crate) stale_unanswered: u64,

    /// A tick with neither run nor skip, or an answered creation or change that is not recorded.
    pub(crate) lost: Breach,
    /// A tick recorded twice, an attempt delivered twice, or a tick delivered under two ids.
    pub(crate) doubled: Breach,
    /// A delivery before its tick.
    pub(crate) early: Breach,
    /// A row or delivery of a tick that no definition has at that time, or a skip without a valid reason.
    pub(crate) unexpected: Breach,
    /// Two runs of a job in progress together although its policy forbids it.
    pub(crate) overlapped: Breach,
    /// A settlement with an old fence that changed a row.
    pub(crate) stale_accepted: Breach,
    /// Runs that are still open, or that failed without a delivery.
    pub(crate) unsettled: Breach,
}

impl Findings {
    /// Breaches by name, in the order of the report.
    pub(crate) fn breaches(&self) -> [(&'static str, &Breach); 7] {
        [
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("early", &self.early),
            ("unexpected", &self.unexpected),
            ("overlapped", &self.overlapped),
            ("stale settles accepted", &self.stale_accepted),
            ("unsettled", &self.unsettled),
        ]
    }
}

pub(crate) fn check(history: &History) -> Findings {
    let mut findings = Findings { jobs: history.jobs.len() as u64, ..Findings::default() };
    record::check(history, &mut findings);
    arrivals::check(history, &mut findings);
    lag::measure(history, &mut findings);
    findings
}
