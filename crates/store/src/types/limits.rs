//! The quotas and read limits of a store, and the result of pruning.

/// The quotas and read limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub jobs_per_tenant_max: u64,
    /// Open requested runs of one job; further requests are refused.
    pub open_requests_per_job_max: u64,
    /// Waiting runs of one job; further ticks are recorded as skips with the reason `quota`.
    pub waiting_per_job_max: usize,
    pub calendars_per_tenant_max: u64,
    /// Valid tokens of one tenant.
    pub tokens_per_tenant_max: u64,
    pub secrets_per_tenant_max: u64,
    /// Runs, flows or audit rows that one page of a list reads to find matches for its filter.
    pub runs_searched_max: usize,
    /// Waiting runs of one job that one transaction cancels or moves. A longer backlog is processed in batches of this
    /// size.
    pub backlog_batch_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            jobs_per_tenant_max: 100_000,
            open_requests_per_job_max: 1_000,
            waiting_per_job_max: 100_000,
            calendars_per_tenant_max: 1_000,
            tokens_per_tenant_max: 1_000,
            secrets_per_tenant_max: 1_000,
            runs_searched_max: 50_000,
            backlog_batch_max: 2_000,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    pub runs: u64,
    pub jobs: u64,
    pub requests: u64,
}
