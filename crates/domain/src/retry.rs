//! When a failed run is tried again: exponential backoff with full jitter, as data. The row waits; no loop here does.

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, time::Span};

pub const RETRIES_MAX: u32 = 100;
pub const RETRY_DELAY_MAX: Span = Span::days(7);
/// How often a run whose node or worker vanished is redelivered, apart from its retries.
pub const LOST_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetryPolicy {
    pub max_retries: u32,
    pub base_delay: Span,
    pub max_delay: Span,
}

impl RetryPolicy {
    #[must_use]
    pub const fn with_retries(max_retries: u32) -> Self {
        Self { max_retries, base_delay: Span::seconds(5), max_delay: Span::hours(1) }
    }

    /// The delay before retry number `retry` (0 is the first): somewhere between nothing and the doubled base, capped.
    /// Full jitter spreads a crowd that failed together better than any fixed delay.
    #[must_use]
    pub fn delay(&self, retry: u32, random: u64) -> Span {
        let doubled = self.base_delay.as_millis().saturating_mul(1_u64.checked_shl(retry.min(40)).unwrap_or(u64::MAX));
        let cap = doubled.min(self.max_delay.as_millis());
        Span::millis(random % cap.saturating_add(1).max(1))
    }

    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        if self.max_retries > RETRIES_MAX {
            found.push(Invalid::new("max_retries", format!("{} is more than {RETRIES_MAX}", self.max_retries)));
        }
        if self.max_delay > RETRY_DELAY_MAX {
            found.push(Invalid::new("max_delay", format!("{} is longer than {RETRY_DELAY_MAX}", self.max_delay)));
        }
        if self.base_delay > self.max_delay {
            found.push(Invalid::new(
                "base_delay",
                format!("{} is longer than max_delay, which is {}", self.base_delay, self.max_delay),
            ));
        }
        found
    }
}

/// What becomes of a run whose node or worker vanished while it held the claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// Redelivered under the same id with the next attempt.
    #[default]
    Retry,
    /// Failed: for work that must rather be missed than repeated.
    Fail,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_cap_and_jitter_fills_the_whole_width() {
        let policy = RetryPolicy { max_retries: 9, base_delay: Span::seconds(5), max_delay: Span::seconds(60) };
        for (retry, cap) in [(0, 5_000), (1, 10_000), (3, 40_000), (4, 60_000), (63, 60_000), (u32::MAX, 60_000)] {
            assert_eq!(policy.delay(retry, 0), Span::ZERO);
            assert_eq!(policy.delay(retry, cap), Span::millis(cap));
            assert_eq!(policy.delay(retry, cap + 1), Span::ZERO);
        }
    }
}
