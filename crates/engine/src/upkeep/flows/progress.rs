//! The progress of the flows loop between passes: where the last pass ended, and which flows failed.

use std::{collections::BTreeMap, time::Duration};

use everytick_domain::ids::RunId;

use crate::{
    clock::MonoTime,
    settings::{
        FLOW_BACKOFF_FIRST, FLOW_BACKOFF_MAX, FLOW_FAILURES_MAX, FLOW_REFUSALS_MAX, FLOW_RETRIES_PER_PASS_MAX,
        FLOWS_WITH_BACKOFF_MAX,
    },
};

#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The last flow that was advanced.
    after: Option<RunId>,
    failed: BTreeMap<RunId, FailedFlow>,
    /// How many failed flows this pass has retried.
    retries: usize,
}

/// A flow that could not be advanced.
#[derive(Debug)]
struct FailedFlow {
    failures: u32,
    /// Failures in which the database refused the data itself.
    refusals: u32,
    /// When it is retried.
    at: MonoTime,
    why: String,
}

/// Why a flow could not be advanced.
pub(super) struct Failure {
    pub refused: bool,
    pub why: String,
}

/// What to do with a flow now.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    Advance,
    Wait,
    /// Record its next jobs as skipped, with this text as error.
    GiveUp(String),
}

impl Progress {
    /// Begins a pass. Returns the flow after which it starts.
    pub(super) fn begin(&mut self) -> Option<RunId> {
        self.retries = 0;
        self.after
    }

    pub(super) fn passed(&mut self, flow: Option<RunId>) {
        self.after = flow;
    }

    pub(super) fn next(&mut self, flow: RunId, now: MonoTime) -> Next {
        let Some(failed) = self.failed.get(&flow) else { return Next::Advance };
        // Each retry may take its whole timeout, so healthy flows wait for at most two of them.
        if failed.at > now || self.retries >= FLOW_RETRIES_PER_PASS_MAX {
            return Next::Wait;
        }
        self.retries += 1;
        if failed.failures < FLOW_FAILURES_MAX && failed.refusals < FLOW_REFUSALS_MAX {
            return Next::Advance;
        }
        Next::GiveUp(format!("the flow could not be advanced after {} failures: {}", failed.failures, failed.why))
    }

    pub(super) fn done(&mut self, flow: RunId) {
        self.failed.remove(&flow);
    }

    /// Notes a failure and sets the backoff. Returns how often the flow has failed.
    pub(super) fn failed(&mut self, flow: RunId, failure: Failure, now: MonoTime) -> u32 {
        if self.failed.len() >= FLOWS_WITH_BACKOFF_MAX {
            // Another node may have advanced a flow that failed here.
            self.failed.retain(|_, failed| now.since(failed.at) < FLOW_BACKOFF_MAX);
        }
        let (failures, refusals) = self.failed.get(&flow).map_or((0, 0), |failed| (failed.failures, failed.refusals));
        let failures = failures.saturating_add(1);
        let refusals = refusals.saturating_add(u32::from(failure.refused));
        if self.failed.len() < FLOWS_WITH_BACKOFF_MAX || self.failed.contains_key(&flow) {
            let at = now.plus(backoff(failures));
            self.failed.insert(flow, FailedFlow { failures, refusals, at, why: failure.why });
        }
        failures
    }
}

fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FLOW_BACKOFF_FIRST.saturating_mul(1 << doublings).min(FLOW_BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everytick_domain::time::DbTime;

    fn flow(n: i64) -> RunId {
        RunId::floor(DbTime::from_millis(n))
    }

    fn failure(refused: bool) -> Failure {
        Failure { refused, why: "locked".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_that_fails_waits_longer_each_time_and_is_given_up_in_the_end() {
        let (mut progress, start) = (Progress::default(), MonoTime::now());
        let mut now = start;
        for failures in 1..=FLOW_FAILURES_MAX {
            progress.begin();
            assert_eq!(progress.next(flow(1), now), Next::Advance, "failure {failures}");
            assert_eq!(progress.failed(flow(1), failure(false), now), failures);
            assert_eq!(progress.next(flow(1), now), Next::Wait);
            assert_eq!(progress.next(flow(2), now), Next::Advance, "no other flow waits for it");
            now = now.plus(backoff(failures));
        }
        progress.begin();
        assert!(matches!(progress.next(flow(1), now), Next::GiveUp(why) if why.ends_with("failures: locked")));
        assert!(now.since(start) > Duration::from_secs(3_000), "an outage of some minutes loses no child");
        progress.done(flow(1));
        assert_eq!(progress.next(flow(1), now), Next::Advance);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_whose_data_is_refused_is_given_up_sooner() {
        let (mut progress, mut now) = (Progress::default(), MonoTime::now());
        for _ in 0..FLOW_REFUSALS_MAX {
            progress.failed(flow(1), failure(true), now);
            now = now.plus(FLOW_BACKOFF_MAX);
        }
        assert!(matches!(progress.next(flow(1), now), Next::GiveUp(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_retries_at_most_two_failed_flows() {
        let (mut progress, now) = (Progress::default(), MonoTime::now());
        for n in 0..10 {
            progress.failed(flow(n), failure(false), now);
        }
        let later = now.plus(FLOW_BACKOFF_MAX);
        progress.begin();
        let retried = (0..10).filter(|n| progress.next(flow(*n), later) == Next::Advance).count();
        assert_eq!(retried, FLOW_RETRIES_PER_PASS_MAX);
    }
}
