//! The metrics that every run updates. Each handle is created once: a lookup by name and labels costs more than the
//! update.

use std::sync::OnceLock;

use everytick_domain::target::{Outcome, TargetKind, TargetSpec};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

const KINDS: usize = TargetKind::ALL.len();
/// One more than the largest index of `word`.
const OUTCOMES: usize = 10;
const _: () = assert!(word(&Outcome::Returned).0 < OUTCOMES);

pub(crate) struct Meters {
    pub lag: Histogram,
    pub in_progress: Gauge,
    pub recorded: Counter,
    durations: [OnceLock<Histogram>; KINDS],
    /// By target and outcome. A series appears with its first event.
    attempts: [[OnceLock<Counter>; OUTCOMES]; KINDS],
}

impl Meters {
    pub(crate) fn new() -> Self {
        Self {
            lag: histogram!("everytick_dispatch_lag_seconds"),
            in_progress: gauge!("everytick_runs_in_progress"),
            recorded: counter!("everytick_ticks_recorded_total"),
            durations: std::array::from_fn(|_| OnceLock::new()),
            attempts: std::array::from_fn(|_| std::array::from_fn(|_| OnceLock::new())),
        }
    }

    /// Counts an attempt that has ended.
    pub(crate) fn attempt(&self, target: &TargetSpec, outcome: &Outcome, took: std::time::Duration) {
        let kind = TargetKind::of(target);
        let (index, word) = word(outcome);
        self.durations[kind.index()]
            .get_or_init(|| histogram!("everytick_attempt_duration_seconds", "target" => kind.word()))
            .record(took.as_secs_f64());
        self.attempts[kind.index()][index]
            .get_or_init(|| counter!("everytick_attempts_total", "target" => kind.word(), "outcome" => word))
            .increment(1);
    }
}

const fn word(outcome: &Outcome) -> (usize, &'static str) {
    match outcome {
        Outcome::Succeeded { .. } => (0, "succeeded"),
        Outcome::Accepted => (1, "accepted"),
        Outcome::Failed { .. } => (2, "failed"),
        Outcome::Gone { .. } => (3, "gone"),
        Outcome::TimedOut { .. } | Outcome::Unreported { .. } => (4, "timed_out"),
        Outcome::Cancelled { .. } => (5, "cancelled"),
        Outcome::Lost => (6, "lost"),
        Outcome::Unsent => (7, "unsent"),
        Outcome::NotHere { .. } => (8, "not_here"),
        Outcome::Returned => (9, "returned"),
    }
}
