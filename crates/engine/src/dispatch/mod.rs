//! Dispatch: sends claimed runs to their targets, transfers accepted work to its receiver, and stops work that was ended
//! elsewhere.

pub(crate) mod accept;
pub(crate) mod cancel;
pub(crate) mod deliver;
