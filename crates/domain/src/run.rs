//! The life of a run: its states, which requests each state accepts, and how an outcome becomes a settlement.

use crate::{
    ids::{Fence, RunId},
    output::keep_stored,
    retry::{LOST_MAX, OnLost, RetryPolicy},
    target::{Outcome, Retry},
    time::{DbTime, Span},
};

pub const ERROR_BYTES_MAX: usize = 2_048;

/// The error of a run whose attempt was lost, and that is delivered again.
const LOST_ERROR: &str = "lost: the node or worker that claimed it vanished";
/// The error of a run that failed because its attempt was lost.
const LOST_FAILED_ERROR: &str = "lost: the node or worker that claimed it vanished, and on_lost is fail";

/// The error of a run that failed because it was lost `times` times.
fn lost_times_error(times: u32) -> String {
    format!("lost {times} times")
}

/// Whether this is the error of a run that failed because it was lost again, after `lost` earlier losses. Workers write
/// errors too, so only the exact text counts.
#[must_use]
pub fn is_lost_error(error: &str, lost: u32) -> bool {
    error == LOST_FAILED_ERROR || (lost > 0 && error == lost_times_error(lost.saturating_add(1)))
}

/// Enums stored as integer codes. A code never changes and is never reused. An unknown code reads as `Unknown`, because nodes
/// of two releases run side by side and the older one must read what the newer one writes.
macro_rules! coded {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $code:literal $word:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($variant,)*
            /// A code that this release does not know.
            Unknown(i16),
        }
        impl $name {
            /// All values that this release knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            #[must_use]
            pub const fn code(self) -> i16 {
                match self { $(Self::$variant => $code,)* Self::Unknown(code) => code }
            }
            #[must_use]
            pub const fn from_code(code: i16) -> Self {
                match code { $($code => Self::$variant,)* code => Self::Unknown(code) }
            }
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* Self::Unknown(_) => "unknown" }
            }
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}
pub(crate) use coded;
coded! {
    State {
        Waiting = 0 "waiting",
        Claimed = 1 "claimed",
        Succeeded = 2 "succeeded",
        Failed = 3 "failed",
        Cancelled = 4 "cancelled",
        Skipped = 5 "skipped",
    }
    /// Why a tick has no run.
    SkipReason {
        Overlap = 1 "overlap",
        Misfire = 2 "misfire",
        CatchUp = 3 "catch_up",
        Calendar = 4 "calendar",
        Quota = 5 "quota",
        Error = 6 "error",
        Parent = 7 "parent",
        Paused = 8 "paused",
    }
    /// What started a run.
    CauseKind {
        Tick = 1 "tick",
        Request = 2 "request",
        Backfill = 3 "backfill",
        Parent = 4 "parent",
    }
}

impl State {
    /// Open runs may still be worked on; all other states are final (I8). A run in an unknown state belongs to nodes of a later
    /// release: this release neither starts it nor waits for it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Waiting | Self::Claimed => true,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Skipped | Self::Unknown(_) => false,
        }
    }
}

/// A user's request about a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    Cancel,
    Rerun,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejected {
    pub state: State,
    pub request: Request,
}

/// Decides whether a run in `state` accepts `request`, and returns the state that the run then has. Every pair is written out,
/// without `_`, so a new state does not compile until it is decided. A rerun does not change this run (I8): it makes a new run.
pub fn answer(state: State, request: Request) -> Result<State, Rejected> {
    use {Request::*, State::*};
    match (request, state) {
        (Cancel, Waiting | Claimed) => Ok(Cancelled),
        (Cancel, Succeeded | Failed | Cancelled | Skipped | Unknown(_)) => Err(Rejected { state, request }),
        (Rerun, Succeeded | Failed | Cancelled | Skipped) => Ok(state),
        (Rerun, Waiting | Claimed | Unknown(_)) => Err(Rejected { state, request }),
    }
}

/// A claim on a run. `settle` consumes it, so settling twice, or settling unclaimed work, does not compile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub run: RunId,
    pub fence: Fence,
    /// The first attempt is 1.
    pub attempt: u32,
    /// How many earlier attempts were lost. Lost attempts do not count as retries.
    pub lost: u32,
}

/// The part of a job's definition that decides what follows from an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub retry: RetryPolicy,
    pub on_lost: OnLost,
}

/// The state change derived from an outcome. Committed only while the run is claimed under this fence (I7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settlement {
    pub run: RunId,
    pub fence: Fence,
    pub verdict: Verdict,
    pub error: Option<String>,
    pub output: Option<String>,
    /// If set, the job is paused too, with this note.
    pub pause: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Succeeded,
    Failed,
    Cancelled,
    /// Another attempt, not before `due_at`.
    Retry {
        due_at: DbTime,
    },
    /// The attempt was lost; redeliver at once.
    Redeliver,
    /// Never sent: released without using an attempt.
    HandBack,
    /// Returned by its worker before the work began: no attempt is used, and the run keeps its position in the queue.
    Return,
}

impl Verdict {
    #[must_use]
    pub const fn state(self) -> State {
        match self {
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed,
            Self::Cancelled => State::Cancelled,
            Self::Retry { .. } | Self::Redeliver | Self::HandBack | Self::Return => State::Waiting,
        }
    }

    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
            Self::Retry { .. } | Self::Redeliver | Self::HandBack | Self::Return => false,
        }
    }
}

/// How a run waits again after an attempt that did not end it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requeue {
    /// `None`: as before the claim.
    pub due_at: Option<DbTime>,
    /// The recorded outcome of the attempt; `None` if nothing was sent, so that no attempt is used.
    pub attempt: Option<&'static str>,
    /// Whether the attempt counts as lost.
    pub is_lost: bool,
}

impl Verdict {
    /// How the run waits again; `None` if it has ended.
    #[must_use]
    pub const fn requeue(self, now: DbTime) -> Option<Requeue> {
        match self {
            Self::Succeeded | Self::Failed | Self::Cancelled => None,
            Self::Retry { due_at } => Some(Requeue { due_at: Some(due_at), attempt: Some("failed"), is_lost: false }),
            Self::Redeliver => Some(Requeue { due_at: Some(now), attempt: Some("lost"), is_lost: true }),
            Self::HandBack => Some(Requeue { due_at: Some(now), attempt: None, is_lost: false }),
            Self::Return => Some(Requeue { due_at: None, attempt: None, is_lost: false }),
        }
    }
}

impl Claim {
    /// Derives the settlement. `None` when the receiver accepted the work and will report later: the claim stays.
    #[must_use]
    pub fn settle(self, outcome: Outcome, policy: Policy, now: DbTime, random: u64) -> Option<Settlement> {
        let retries = self.attempt.saturating_sub(1).saturating_sub(self.lost);
        let again = |after: Span| {
            if retries < policy.retry.max_retries {
                Verdict::Retry { due_at: now.plus(policy.retry.delay(retries, random).max(after)) }
            } else {
                Verdict::Failed
            }
        };
        let (verdict, error, output, pause) = match outcome {
            Outcome::Accepted => return None,
            Outcome::Succeeded { output } => (Verdict::Succeeded, None, output, None),
            Outcome::Cancelled { output } => (Verdict::Cancelled, None, output, None),
            Outcome::Unsent => (Verdict::HandBack, None, None, None),
            Outcome::Returned => (Verdict::Return, None, None, None),
            Outcome::Failed { error, output, retry: Retry::Never } => (Verdict::Failed, Some(error), output, None),
            // No live node can deliver the run. Retry, because a node that can deliver it may be restarting.
            Outcome::NotHere { error, .. } => (again(Span::ZERO), Some(error), None, None),
            Outcome::Failed { error, output, retry: Retry::Allowed } => (again(Span::ZERO), Some(error), output, None),
            Outcome::Failed { error, output, retry: Retry::After(after) } => (again(after), Some(error), output, None),
            Outcome::TimedOut { after, output } => {
                (again(Span::ZERO), Some(format!("timed out after {after}")), output, None)
            }
            Outcome::Unreported { after } => {
                let error =
                    format!("the receiver accepted the run with 202 and did not report its result within {after}");
                (again(Span::ZERO), Some(error), None, None)
            }
            Outcome::Gone { note, output } => (Verdict::Failed, Some(note.clone()), output, Some(note)),
            Outcome::Lost => match policy.on_lost {
                OnLost::Retry if self.lost < LOST_MAX => (Verdict::Redeliver, Some(LOST_ERROR.to_owned()), None, None),
                OnLost::Retry => (Verdict::Failed, Some(lost_times_error(self.lost + 1)), None, None),
                OnLost::Fail => (Verdict::Failed, Some(LOST_FAILED_ERROR.to_owned()), None, None),
            },
        };
        let (output, error) = kept(output, error);
        Some(Settlement { run: self.run, fence: self.fence, verdict, error, output, pause })
    }
}

impl Settlement {
    /// The settlement of a success. It does not depend on the job's policy.
    #[must_use]
    pub fn success(run: RunId, fence: Fence, output: Option<String>) -> Self {
        let (output, error) = kept(output, None);
        Self { run, fence, verdict: Verdict::Succeeded, error, output, pause: None }
    }
}

/// Truncates an output and an error to their limits: the end of the output, the beginning of the error.
#[must_use]
pub fn kept(output: Option<String>, error: Option<String>) -> (Option<String>, Option<String>) {
    let error = error.map(|mut text| {
        truncate(&mut text, ERROR_BYTES_MAX);
        text
    });
    (output.map(keep_stored), error)
}

fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { retry: RetryPolicy::with_retries(2), on_lost: OnLost::Retry };

    fn on(attempt: u32, lost: u32) -> Claim {
        Claim { run: RunId::floor(DbTime::EPOCH), fence: Fence::from_raw(1), attempt, lost }
    }
    fn failed() -> Outcome {
        Outcome::Failed { error: "no".into(), output: None, retry: Retry::Allowed }
    }
    fn verdict(claim: Claim, outcome: Outcome) -> Verdict {
        claim.settle(outcome, POLICY, DbTime::EPOCH, 0).unwrap().verdict
    }

    #[test]
    fn a_failure_is_retried_until_the_retries_are_spent() {
        assert!(matches!(verdict(on(1, 0), failed()), Verdict::Retry { .. }));
        assert!(matches!(verdict(on(2, 0), failed()), Verdict::Retry { .. }));
        assert_eq!(verdict(on(3, 0), failed()), Verdict::Failed);
    }

    #[test]
    fn a_run_that_no_living_node_can_deliver_is_retried_and_names_the_reason() {
        let not_here = || Outcome::NotHere { error: "start it with --enable-shell".into(), address: None };
        let settled = on(1, 0).settle(not_here(), POLICY, DbTime::EPOCH, 0).unwrap();
        assert!(matches!(settled.verdict, Verdict::Retry { .. }), "a capable node may be restarting");
        assert_eq!(settled.error.as_deref(), Some("start it with --enable-shell"));
        assert_eq!(verdict(on(3, 0), not_here()), Verdict::Failed);
    }

    #[test]
    fn a_receiver_that_accepted_and_did_not_report_is_named_in_the_error() {
        let settled =
            on(1, 0).settle(Outcome::Unreported { after: Span::seconds(5) }, POLICY, DbTime::EPOCH, 0).unwrap();
        assert!(matches!(settled.verdict, Verdict::Retry { .. }), "{settled:?}");
        let error = settled.error.unwrap();
        assert!(error.contains("202") && error.contains("did not report its result within 5s"), "{error}");
    }

    #[test]
    fn lost_attempts_are_counted_apart_from_retries_and_are_bounded_too() {
        assert!(matches!(verdict(on(4, 2), failed()), Verdict::Retry { .. }));
        assert_eq!(verdict(on(3, 2), Outcome::Lost), Verdict::Redeliver);
        assert_eq!(verdict(on(4, 3), Outcome::Lost), Verdict::Failed);
    }

    #[test]
    fn on_lost_fail_fails_at_the_first_loss() {
        let settled =
            on(1, 0).settle(Outcome::Lost, Policy { on_lost: OnLost::Fail, ..POLICY }, DbTime::EPOCH, 0).unwrap();
        assert_eq!(settled.verdict, Verdict::Failed);
        assert!(settled.error.unwrap().contains("on_lost"));
    }

    #[test]
    fn retry_after_is_honoured_even_when_the_backoff_is_shorter() {
        let busy = Outcome::Failed { error: "503".into(), output: None, retry: Retry::After(Span::minutes(2)) };
        assert_eq!(verdict(on(1, 0), busy), Verdict::Retry { due_at: DbTime::EPOCH.plus(Span::minutes(2)) });
    }

    #[test]
    fn a_verdict_either_ends_the_run_or_makes_it_wait_again() {
        let (now, later) = (DbTime::EPOCH, DbTime::EPOCH.plus(Span::minutes(1)));
        for verdict in [
            Verdict::Succeeded,
            Verdict::Failed,
            Verdict::Cancelled,
            Verdict::Retry { due_at: later },
            Verdict::Redeliver,
            Verdict::HandBack,
            Verdict::Return,
        ] {
            assert_eq!(verdict.requeue(now).is_none(), verdict.is_terminal(), "{verdict:?}");
            assert_eq!(verdict.state().is_open(), !verdict.is_terminal(), "{verdict:?}");
        }
        assert_eq!(Verdict::Retry { due_at: later }.requeue(now).and_then(|requeue| requeue.due_at), Some(later));
        assert_eq!(Verdict::Return.requeue(now).map(|requeue| requeue.due_at), Some(None), "it keeps its position");
        for verdict in [Verdict::HandBack, Verdict::Return] {
            assert_eq!(verdict.requeue(now).map(|requeue| requeue.attempt), Some(None), "no attempt is used");
        }
    }

    #[test]
    fn a_terminal_run_cannot_be_cancelled_and_an_open_run_cannot_be_rerun() {
        for state in State::ALL {
            assert_eq!(answer(*state, Request::Cancel).is_ok(), state.is_open(), "{state:?}");
            assert_eq!(answer(*state, Request::Rerun).is_ok(), !state.is_open(), "{state:?}");
        }
    }
}
