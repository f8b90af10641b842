//! New jobs without a change number. Every owner reads numbered jobs again at each poll, until no commit can become
//! visible late any more: too much work if millions of jobs are registered at once. The horizon load finds jobs with a
//! later first tick in time.

use everytick_domain::time::{DbTime, Span};

/// A first tick this far ahead is found by the horizon load: it reaches 1 minute ahead, runs at least every 30 s, and
/// no commit becomes visible more than 1 minute late.
pub const ANNOUNCED_WITHIN: Span = Span::minutes(5);

/// Whether a new job with this cursor gets a change number.
pub fn is_announced(cursor: Option<DbTime>, now: DbTime) -> bool {
    cursor.is_some_and(|cursor| cursor < now.plus(ANNOUNCED_WITHIN))
}
