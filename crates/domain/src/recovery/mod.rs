//! After an outage: how fast a backlog may be started (`rate`) and whose turn it is (`turns`), what a restart would fire
//! (`forecast`), and which ticks were lost although they must be on the record (`lost`).

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
