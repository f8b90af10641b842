//! The result of a campaign, as text and as JSON, and whether everything is as promised.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{check::Findings, history::Fault, node::LEASE_MS};

/// Time limit for catching up after a fault.
pub(crate) const CATCH_UP_MS_MAX: i64 = 2 * LEASE_MS + 3_000;
const LAG_P99_MS_MAX: i64 = 1_000;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) seconds: i64,
    pub(crate) network_faults: bool,
    pub(crate) clock_faults: bool,
    pub(crate) sabotage: Option<&'static str>,
    pub(crate) findings: Findings,
    pub(crate) faults: Vec<Fault>,
    /// Differences between the API and the record.
    pub(crate) api_differs: Vec<String>,
    /// Unexpected behaviour of nodes, such as an exit.
    pub(crate) oddities: Vec<String>,
    /// Whether speed is checked too, not only safety.
    pub(crate) judge_lag: bool,
}

impl Report {
    fn by_kind(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for kind in self.faults.iter().flat_map(|fault| &fault.kinds) {
            *kinds.entry(*kind).or_default() += 1;
        }
        kinds
    }

    /// Everything that is not as promised.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self
            .findings
            .breaches()
            .iter()
            .filter(|(_, breach)| breach.count > 0)
            .map(|(name, breach)| format!("{name}: {}", breach.count))
            .collect();
        if !self.api_differs.is_empty() {
            wrong.push(format!("the API differs from the record: {}", self.api_differs.len()));
        }
        // Every fault must be caught up. Without `judge_lag` (a short campaign on a busy machine), the time has no limit.
        for fault in &self.faults {
            match fault.catch_up_ms() {
                Some(ms) if ms > CATCH_UP_MS_MAX && self.judge_lag => {
                    wrong.push(format!("caught up only after {:.1} s: {}", seconds(ms), fault.what));
                }
                Some(_) => {}
                None => wrong.push(format!("never caught up: {}", fault.what)),
            }
        }
        let p99 = self.findings.lag_untouched.p99_ms;
        if self.judge_lag && p99 > LAG_P99_MS_MAX {
            wrong.push(format!("lag p99 of untouched ticks: {p99} ms, more than {LAG_P99_MS_MAX} ms"));
        }
        wrong
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let mut value = serde_json::to_value(self)?;
        value["faults_by_kind"] = serde_json::to_value(self.by_kind())?;
        value["wrong"] = serde_json::to_value(self.wrong())?;
        serde_json::to_string_pretty(&value)
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| out.extend([text.as_str(), "\n"]);
        let found = &self.findings;
        line(format!("seed {}, {} s, {} faults", self.seed, self.seconds, self.by_kind().values().sum::<usize>()));
        if let Some(sabotage) = self.sabotage {
            line(format!("  SABOTAGED: {sabotage}"));
        }
        if !self.network_faults {
            line("  no network namespaces here: nodes were stopped where they would have been cut off".to_owned());
        }
        if !self.clock_faults {
            line("  no libfaketime here: nodes were killed where their clock would have been moved".to_owned());
        }
        line(format!("  jobs {}, ticks expected {}", found.jobs, found.expected));
        line(format!("  recorded as runs {}, as skips {:?}", found.runs, found.skips));
        line(format!("  runs by state {:?}", found.states));
        line(format!("  deliveries {}, of which redelivered {}", found.deliveries, found.redelivered));
        line(format!("  old fences refused {}, not answered {}", found.stale_refused, found.stale_unanswered));
        for (name, breach) in found.breaches() {
            line(format!("  {name}: {}", breach.count));
            breach.first.iter().for_each(|text| line(format!("      {text}")));
        }
        line(format!("  the API differs from the record: {}", self.api_differs.len()));
        self.api_differs.iter().take(10).for_each(|text| line(format!("      {text}")));
        for (what, lag) in [("that no fault touched", &found.lag_untouched), ("of all", &found.lag_all)] {
            let (ticks, p50, p99, max) = (lag.ticks, lag.p50_ms, lag.p99_ms, lag.max_ms);
            line(format!("  lag of ticks {what} ({ticks}): p50 {p50} ms, p99 {p99} ms, max {max} ms"));
        }
        line(format!("  later than 1 s: {}", found.late));
        line("  faults by kind, and the longest time to catch up:".to_owned());
        for (kind, times) in self.by_kind() {
            let of_kind = self.faults.iter().filter(|fault| fault.kinds.contains(&kind)).map(Fault::catch_up_ms);
            let longest = of_kind.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
            let longest = longest.map_or("never".to_owned(), |ms| format!("{:.1} s", seconds(ms)));
            line(format!("    {times:3} x {kind}: {longest}"));
        }
        self.oddities.iter().for_each(|odd| line(format!("  unexpected behaviour of a node: {odd}")));
        match self.wrong() {
            wrong if wrong.is_empty() => line("  all right".to_owned()),
            wrong => wrong.iter().for_each(|wrong| line(format!("  WRONG: {wrong}"))),
        }
        out
    }
}

pub(crate) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}
