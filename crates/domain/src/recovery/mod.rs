//! Recovery after an outage.
//!
//! | file | rule |
//! |---|---|
//! | `rate` | how fast a backlog may start |
//! | `rotation` | in which order of tenants it starts |
//! | `forecast` | which runs a restart would start |
//! | `lost` | which ticks are missing from the record |

mod forecast;
mod lost;
mod rate;
mod rotation;

pub use self::{
    forecast::{Forecast, forecast},
    lost::{Ledger, Missing, TICKS_CHECKED_MAX, Window, missing, window},
    rate::{LATE_STARTS_PER_SECOND_MIN, LateStarts, Rate},
    rotation::in_turn,
};
