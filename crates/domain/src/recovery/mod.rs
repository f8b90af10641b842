//! Recovery after an outage: how fast a backlog may start (`rate`), in which order of tenants (`turns`), what a restart would
//! fire (`forecast`), and which ticks are missing from the record (`lost`).

mod forecast;
mod lost;
mod rate;
mod turns;

pub use self::{
    forecast::{Forecast, forecast},
    lost::{Ledger, Missing, TICKS_CHECKED_MAX, Window, missing, window},
    rate::{LATE_STARTS_PER_SECOND_MIN, LateStarts, Rate},
    turns::in_turn,
};
