//! Limits the log messages about a database that does not answer: one at the start, one every 10 s, one at the end. Without the
//! limit, every loop would log many failures a second.

use std::time::Duration;

use crate::clock::MonoTime;

const LOG_EVERY: Duration = Duration::from_secs(10);
/// Fewer failures are not reported as an outage when they end: a single one may be a lock timeout.
const FAILURES_MIN: u32 = 5;

#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<MonoTime>,
    logged_at: Option<MonoTime>,
    failures: u32,
}

impl Outage {
    /// Notes a failure. Returns whether to log it as a warning.
    pub(crate) fn failed(&mut self, now: MonoTime) -> bool {
        self.since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        let is_logged = self.logged_at.is_none_or(|logged_at| now.since(logged_at) >= LOG_EVERY);
        if is_logged {
            self.logged_at = Some(now);
        }
        is_logged
    }

    /// Notes an answer. If it ends an outage, returns how long the outage lasted.
    pub(crate) fn answered(&mut self, now: MonoTime) -> Option<Duration> {
        let since = self.since.take()?;
        let failures = std::mem::take(&mut self.failures);
        self.logged_at = None;
        (failures >= FAILURES_MIN).then(|| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_at_its_start_every_10_seconds_and_at_its_end() {
        let start = MonoTime::now();
        let at = |ms: u64| start.plus(Duration::from_millis(ms));
        let mut outage = Outage::default();
        assert_eq!(outage.answered(at(0)), None);
        let logged: Vec<u64> = (0..250).map(|n| n * 100).filter(|ms| outage.failed(at(*ms))).collect();
        assert_eq!(logged, [0, 10_000, 20_000]);
        assert_eq!(outage.answered(at(25_000)), Some(Duration::from_secs(25)));
        assert_eq!(outage.answered(at(25_001)), None);
        assert!(outage.failed(at(26_000)));
        assert_eq!(outage.answered(at(26_100)), None, "one failure is not an outage");
    }
}
