//! Dispatch: sends claimed runs to their targets, transfers accepted work to its receiver, and stops work on runs that
//! a user, a worker or another node ended.

pub(crate) mod accept;
pub(crate) mod cancel;
pub(crate) mod deliver;
mod secrets;
mod tenant;
