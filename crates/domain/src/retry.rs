//! When a failed run is retried: exponential backoff with jitter, as data. A retry is a row with a later due time, not a loop.

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, time::Span};

pub const RETRIES_MAX: u32 = 100;
pub const RETRY_DELAY_MAX: Span = Span::days(7);
/// How often a run whose node or worker vanished is redelivered. Counted separately from its retries.
pub const LOST_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetryPolicy {
    pub max_retries: u32,
    pub base_delay: Span,
    pub max_delay: Span,
    /// Definitions stored before this field existed have full jitter. Nodes of that release ignore the field and use full
    /// jitter.
    #[serde(default, skip_serializing_if = "Jitter::is_full")]
    pub jitter: Jitter,
}

/// How much of a delay is random, so that runs that failed together are not all retried together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// All of it: between 0 and the whole delay.
    #[default]
    Full,
    /// Half of it: between half and the whole delay.
    Equal,
}

impl Jitter {
    fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

impl RetryPolicy {
    /// The default delays: 5 s, doubling up to 10 min, half fixed and half random.
    #[must_use]
    pub const fn with_retries(max_retries: u32) -> Self {
        Self { max_retries, base_delay: Span::seconds(5), max_delay: Span::minutes(10), jitter: Jitter::Equal }
    }

    /// The defaults up to release 0.1. Definitions stored then omit them; see `compact`.
    #[must_use]
    pub const fn first_default(max_retries: u32) -> Self {
        Self { max_retries, base_delay: Span::seconds(5), max_delay: Span::hours(1), jitter: Jitter::Full }
    }

    /// The delay before retry number `retry` (0 is the first): the base doubled per retry, capped, minus the random part.
    #[must_use]
    pub fn delay(&self, retry: u32, random: u64) -> Span {
        let whole = self.whole_delay(retry);
        let fixed = match self.jitter {
            Jitter::Full => 0,
            Jitter::Equal => whole / 2,
        };
        Span::millis(fixed + random % (whole - fixed).saturating_add(1).max(1))
    }

    fn whole_delay(&self, retry: u32) -> u64 {
        let doubled = self.base_delay.as_millis().saturating_mul(1_u64.checked_shl(retry.min(40)).unwrap_or(u64::MAX));
        doubled.min(self.max_delay.as_millis())
    }

    /// The longest total of all delays, without the attempts themselves and without `Retry-After` delays.
    #[must_use]
    pub fn longest_total(&self) -> Span {
        let total = (0..self.max_retries.min(RETRIES_MAX)).map(|retry| self.whole_delay(retry)).sum();
        Span::millis(total)
    }

    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        if self.max_retries > RETRIES_MAX {
            found.push(Invalid::new(
                "max_retries",
                format!("{} is out of range; it must be at most {RETRIES_MAX}", self.max_retries),
            ));
        }
        if self.max_delay > RETRY_DELAY_MAX {
            found.push(Invalid::new(
                "max_delay",
                format!("{} is out of range; it must be at most {RETRY_DELAY_MAX}", self.max_delay),
            ));
        }
        if self.base_delay > self.max_delay {
            found.push(Invalid::new(
                "base_delay",
                format!(
                    "{} is longer than max_delay ({}); it must be at most max_delay",
                    self.base_delay, self.max_delay
                ),
            ));
        }
        found
    }
}

/// What happens to a run whose node or worker vanished while it was claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// Redeliver under the same id with the next attempt.
    #[default]
    Retry,
    /// Fail the run: for work that is better missed than repeated.
    Fail,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_full_jitter_covers_the_whole_delay() {
        let policy = RetryPolicy {
            max_retries: 9,
            base_delay: Span::seconds(5),
            max_delay: Span::seconds(60),
            jitter: Jitter::Full,
        };
        for (retry, cap) in [(0, 5_000), (1, 10_000), (3, 40_000), (4, 60_000), (63, 60_000), (u32::MAX, 60_000)] {
            assert_eq!(policy.delay(retry, 0), Span::ZERO);
            assert_eq!(policy.delay(retry, cap), Span::millis(cap));
            assert_eq!(policy.delay(retry, cap + 1), Span::ZERO);
        }
    }

    #[test]
    fn equal_jitter_draws_from_the_upper_half_of_each_delay() {
        let policy = RetryPolicy::with_retries(10);
        for (retry, half, whole) in
            [(0, 2_500, 5_000), (1, 5_000, 10_000), (7, 300_000, 600_000), (9, 300_000, 600_000)]
        {
            assert_eq!(policy.delay(retry, 0), Span::millis(half));
            assert_eq!(policy.delay(retry, whole - half), Span::millis(whole));
            assert_eq!(policy.delay(retry, whole - half + 1), Span::millis(half));
        }
        let none = RetryPolicy { base_delay: Span::ZERO, ..policy };
        assert_eq!(none.delay(3, u64::MAX), Span::ZERO);
    }

    #[test]
    fn ten_retries_last_20_to_40_minutes_and_the_first_default_35_seconds() {
        let policy = RetryPolicy::with_retries(10);
        let shortest: u64 = (0..10).map(|retry| policy.delay(retry, 0).as_millis()).sum();
        assert_eq!((shortest, policy.longest_total()), (1_217_500, Span::seconds(2_435)));
        assert_eq!(policy.longest_total().to_string(), "40m35s");
        assert_eq!(RetryPolicy::first_default(3).longest_total(), Span::seconds(35));
        assert_eq!(RetryPolicy::with_retries(0).longest_total(), Span::ZERO);
        let longest =
            RetryPolicy { max_retries: RETRIES_MAX, base_delay: RETRY_DELAY_MAX, max_delay: RETRY_DELAY_MAX, ..policy };
        assert_eq!(longest.longest_total(), Span::days(700));
    }
}
