//! The policies of a job: overlap, misfire, retry and lost runs.

use everytick_domain::{
    job::{self as domain, CATCH_UP_RUNS_MAX, QUEUE_LIMIT_DEFAULT, QUEUE_LIMIT_MAX},
    retry::{self, RETRIES_MAX, RetryPolicy},
    target::TargetSpec,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::{Duration, FieldErrors};

#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overlap {
    Skip,
    Queue,
    CancelPrevious,
    Allow,
}

/// What happens to ticks that were not recorded in time.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Misfire {
    /// A tick recorded later than this is late, and `catch_up` decides whether it runs. At most 1h.
    #[schema(value_type = Option<Duration>, default = "1m")]
    late_after: Option<String>,
    /// A tick older than this never runs. Default: the larger of 1h and one period.
    #[schema(value_type = Option<Duration>, example = "1h")]
    grace: Option<String>,
    /// Which late ticks run: none, the latest, or all of the newest `max_runs`.
    #[schema(inline)]
    catch_up: Option<CatchUp>,
    #[schema(minimum = 1, maximum = 1000, default = 10)]
    max_runs: Option<i64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CatchUp {
    None,
    Latest,
    All,
}

/// When a failed run is retried. Delays double from `base_delay` to `max_delay`; `jitter` makes them shorter at random.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retry {
    /// The default depends on the kind of target: 10 for http, 0 for shell.
    #[schema(minimum = 0, maximum = 100)]
    max_retries: Option<i64>,
    #[schema(value_type = Option<Duration>, default = "5s")]
    base_delay: Option<String>,
    #[schema(value_type = Option<Duration>, default = "10m")]
    max_delay: Option<String>,
    /// `equal`: half of each delay is fixed and half is random. `full`: all of it is random.
    #[schema(inline, default = "equal")]
    jitter: Option<Jitter>,
    /// The longest possible sum of all delays, without the attempts. Set by the server.
    #[schema(value_type = Option<Duration>, read_only, example = "40m35s")]
    longest_total: Option<String>,
}

/// How much of a delay is random.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Jitter {
    Full,
    Equal,
}

/// What happens to a run whose node or worker disappeared while it had the claim.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnLost {
    Retry,
    Fail,
}

impl FieldErrors {
    pub(super) fn overlap(&mut self, text: Option<&str>, queue_limit: Option<i64>) -> domain::Overlap {
        let given = queue_limit.is_some();
        let limit = self.number("queue_limit", queue_limit, 1, QUEUE_LIMIT_MAX.into());
        let overlap = match text {
            None | Some("skip") => domain::Overlap::Skip,
            Some("queue") => domain::Overlap::Queue { limit: limit.unwrap_or(QUEUE_LIMIT_DEFAULT) },
            Some("cancel_previous") => domain::Overlap::CancelPrevious,
            Some("allow") => domain::Overlap::Allow,
            Some(other) => {
                let message =
                    format!("{other:?} is not a policy; write \"skip\", \"queue\", \"cancel_previous\" or \"allow\"");
                self.add("overlap", message);
                return domain::Overlap::Skip;
            }
        };
        if let (true, false, Some(limit)) = (given, matches!(overlap, domain::Overlap::Queue { .. }), limit) {
            let message =
                format!("{limit} needs overlap \"queue\"; under {:?} no run waits for another", overlap.word());
            self.add("queue_limit", message);
        }
        overlap
    }
}

impl Misfire {
    pub(super) fn read(self, wrong: &mut FieldErrors) -> domain::Misfire {
        let default = domain::Misfire::default();
        domain::Misfire {
            late_after: wrong.span("misfire.late_after", self.late_after.as_deref()).unwrap_or(default.late_after),
            grace: wrong.span("misfire.grace", self.grace.as_deref()),
            catch_up: self.catch_up.map_or(default.catch_up, Into::into),
            max_runs: wrong
                .number("misfire.max_runs", self.max_runs, 1, CATCH_UP_RUNS_MAX.into())
                .unwrap_or(default.max_runs),
        }
    }
}

impl Retry {
    pub(super) fn read(self, target: &TargetSpec, wrong: &mut FieldErrors) -> RetryPolicy {
        let default = target.retry_default();
        let base_delay = wrong.span("retry.base_delay", self.base_delay.as_deref()).unwrap_or(default.base_delay);
        RetryPolicy {
            max_retries: wrong
                .number("retry.max_retries", self.max_retries, 0, RETRIES_MAX.into())
                .unwrap_or(default.max_retries),
            base_delay,
            max_delay: wrong
                .span("retry.max_delay", self.max_delay.as_deref())
                .unwrap_or(default.max_delay.max(base_delay)),
            jitter: self.jitter.map_or(default.jitter, Into::into),
        }
    }
}

impl From<&domain::Misfire> for Misfire {
    fn from(misfire: &domain::Misfire) -> Self {
        Self {
            late_after: Some(misfire.late_after.to_string()),
            grace: misfire.grace.map(|grace| grace.to_string()),
            catch_up: Some(misfire.catch_up.into()),
            max_runs: Some(misfire.max_runs.into()),
        }
    }
}

impl From<&RetryPolicy> for Retry {
    fn from(retry: &RetryPolicy) -> Self {
        Self {
            max_retries: Some(retry.max_retries.into()),
            base_delay: Some(retry.base_delay.to_string()),
            max_delay: Some(retry.max_delay.to_string()),
            jitter: Some(retry.jitter.into()),
            longest_total: Some(retry.longest_total().to_string()),
        }
    }
}

impl From<domain::Overlap> for Overlap {
    fn from(overlap: domain::Overlap) -> Self {
        match overlap {
            domain::Overlap::Skip => Self::Skip,
            domain::Overlap::Queue { .. } => Self::Queue,
            domain::Overlap::CancelPrevious => Self::CancelPrevious,
            domain::Overlap::Allow => Self::Allow,
        }
    }
}

same_words! {
    CatchUp = domain::CatchUp { None, Latest, All }
    OnLost = retry::OnLost { Retry, Fail }
    Jitter = retry::Jitter { Full, Equal }
}
