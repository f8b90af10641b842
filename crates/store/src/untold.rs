//! New jobs that nobody is told of. Registered by the million, they would be read by every holder, at each poll, for as long as a
//! commit may still come late; and whoever looks at the horizon finds them in time.

use everytick_domain::time::{DbTime, Span};

/// A first tick so far ahead is found by looks at the horizon: they reach a minute ahead, and are less than half a minute apart,
/// and no commit comes later than a minute.
pub const UNTOLD_FROM: Span = Span::minutes(5);

/// Whether a new job with this cursor is told of as a change.
pub fn is_told(cursor: Option<DbTime>, now: DbTime) -> bool {
    cursor.is_some_and(|cursor| cursor < now.plus(UNTOLD_FROM))
}
