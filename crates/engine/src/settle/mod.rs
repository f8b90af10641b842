//! Settlements: every attempt ends here, with one settlement under the fence of its claim.

pub(crate) mod batch;
pub(crate) mod conclude;
pub(crate) mod lost;
pub(crate) mod overdue;
pub(crate) mod report;
pub(crate) mod retry;
