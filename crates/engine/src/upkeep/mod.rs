//! Work in the background: pruning, dead schedules, expired jobs, backfills, backlogs, flows and tenants.

pub(crate) mod backfill;
pub(crate) mod backlog;
pub(crate) mod detect;
pub(crate) mod expire;
pub(crate) mod flows;
pub(crate) mod prune;
pub(crate) mod tenants;
