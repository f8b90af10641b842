//! How long a token is valid.

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, time::Span};

/// The lifetime of a token when its creator names none.
pub const LIFETIME_DEFAULT: Span = Span::days(90);
/// The longest lifetime of a token, unless the operator sets another one.
pub const LIFETIME_MAX_DEFAULT: Span = Span::days(366);
/// How long a token may stay valid after its rotation.
pub const OVERLAP_MAX: Span = Span::days(7);
/// How long a token stays valid after its rotation when the request names no overlap.
pub const OVERLAP_DEFAULT: Span = Span::days(1);
/// An answer names the expiry of its token if the token expires within this time.
pub const EXPIRES_SOON: Span = Span::days(14);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lifetime {
    For(Span),
    Unlimited,
}

/// The operator's limits for new tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifetimePolicy {
    pub max: Span,
    pub allow_unlimited: bool,
}

impl Default for LifetimePolicy {
    fn default() -> Self {
        Self { max: LIFETIME_MAX_DEFAULT, allow_unlimited: false }
    }
}

impl LifetimePolicy {
    /// The lifetime of a new token: the requested one, or the default if the request names none.
    pub fn lifetime(self, asked: Option<Lifetime>) -> Result<Lifetime, Invalid> {
        let wrong = |message: String| Err(Invalid::new("expires", message));
        match asked {
            None => Ok(Lifetime::For(LIFETIME_DEFAULT.min(self.max))),
            Some(Lifetime::Unlimited) if self.allow_unlimited => Ok(Lifetime::Unlimited),
            Some(Lifetime::Unlimited) => wrong(format!(
                "\"never\" needs --allow-tokens-without-expiry on the server; write a duration of at most {}",
                self.max
            )),
            Some(Lifetime::For(span)) if span < Span::minutes(1) => {
                wrong(format!("{span} is too short; write 1m or more"))
            }
            Some(Lifetime::For(span)) if span > self.max => {
                wrong(format!("{span} is longer than {}, the longest lifetime of a token", self.max))
            }
            Some(Lifetime::For(span)) => Ok(Lifetime::For(span)),
        }
    }
}

/// Checks the overlap of a rotation.
pub fn check_overlap(overlap: Span) -> Result<(), Invalid> {
    if overlap <= OVERLAP_MAX {
        return Ok(());
    }
    Err(Invalid::new("overlap", format!("{overlap} is too long; write a duration of at most {OVERLAP_MAX}, or 0s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_90_days_by_default_and_at_most_the_limit() {
        let policy = LifetimePolicy::default();
        assert_eq!(policy.lifetime(None), Ok(Lifetime::For(Span::days(90))));
        assert_eq!(policy.lifetime(Some(Lifetime::For(Span::days(366)))), Ok(Lifetime::For(Span::days(366))));
        for asked in [Span::days(367), Span::seconds(59)] {
            assert_eq!(policy.lifetime(Some(Lifetime::For(asked))).unwrap_err().field, "expires", "{asked}");
        }
        let short = LifetimePolicy { max: Span::days(7), ..policy };
        assert_eq!(short.lifetime(None), Ok(Lifetime::For(Span::days(7))));
    }

    #[test]
    fn a_token_without_expiry_needs_the_setting() {
        let policy = LifetimePolicy::default();
        assert!(
            policy.lifetime(Some(Lifetime::Unlimited)).unwrap_err().message.contains("--allow-tokens-without-expiry")
        );
        let allows = LifetimePolicy { allow_unlimited: true, ..policy };
        assert_eq!(allows.lifetime(Some(Lifetime::Unlimited)), Ok(Lifetime::Unlimited));
    }

    #[test]
    fn an_overlap_is_at_most_seven_days() {
        assert!(check_overlap(Span::days(7)).is_ok() && check_overlap(Span::millis(0)).is_ok());
        assert_eq!(check_overlap(Span::days(8)).unwrap_err().field, "overlap");
    }
}
