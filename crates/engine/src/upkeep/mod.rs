//! Work in the background: pruning, dead schedules, expired jobs, backfills, backlogs and flows, and the
//! stream of the audit trail.

pub(crate) mod backfill;
pub(crate) mod backlog;
pub(crate) mod detect;
pub(crate) mod expire;
pub(crate) mod flows;
pub(crate) mod prune;
pub(crate) mod stream;
