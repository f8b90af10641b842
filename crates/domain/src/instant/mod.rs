//! Times as people type them: `2026-11-17 02:00`, `02:00`, `yesterday`, `2h ago`, or RFC 3339.
//!
//! A text is parsed first ([`InstantText`]) and resolved later, because its meaning depends on the present time and on a zone.
//! Both are arguments. The rules:
//!
//! | text | meaning |
//! |---|---|
//! | a date, or `yesterday`, `today`, `tomorrow` | the start of that day in the zone |
//! | a time of day alone | today; [`Lean`] can choose yesterday or tomorrow |
//! | a duration alone | before or after now, by [`Lean`]; always elapsed time, so `1d` is 24 hours |
//! | a local time that clocks skip | the first instant after the change |
//! | a local time that occurs twice | the first pass |

mod parse;
mod resolve;
#[cfg(test)]
mod tests;
mod zone;

pub use self::{
    parse::InstantText,
    resolve::{Lean, Resolved},
    zone::LocalZone,
};
