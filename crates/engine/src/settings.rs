//! What an operator may set, and the limits that the loops keep.

use std::time::Duration;

use everytick_domain::time::Span;

#[derive(Clone, Debug)]
pub struct Settings {
    pub node: String,
    pub lease: Span,
    /// How many runs this node works on at once.
    pub slots: usize,
    /// How long ended runs are kept.
    pub history: Span,
    /// How often changes of jobs are looked for when no hint came.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: "local".to_owned(),
            lease: Span::seconds(15),
            slots: 1_000,
            history: Span::days(90),
            poll: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// A lease is renewed three times before it would expire.
    pub(crate) fn renew_every(&self) -> Duration {
        Duration::from(self.lease) / 3
    }

    /// A statement that takes longer than this is unsure: its answer will not be waited for.
    pub(crate) fn statement_timeout(&self) -> Duration {
        Duration::from(self.lease) / 3
    }
}

/// Jobs whose next tick is nearer than this are held in memory.
pub(crate) const HORIZON: Span = Span::seconds(60);
/// The horizon is read again before what was read runs out.
pub(crate) const HORIZON_EVERY: Duration = Duration::from_secs(20);
/// Ticks in one recording statement.
pub(crate) const TICKS_PER_BATCH_MAX: usize = 1_000;
/// Jobs read in one statement.
pub(crate) const JOBS_PER_LOAD_MAX: usize = 500;
/// Jobs of the horizon read at once. Each page costs a look into every partition, so a node that takes over 40,000 jobs
/// reads them in ten pages.
pub(crate) const JOBS_PER_HORIZON_MAX: usize = 4_000;
/// Runs claimed in one statement.
pub(crate) const CLAIMS_PER_BATCH_MAX: usize = 500;
/// Settlements in one statement.
pub(crate) const SETTLES_PER_BATCH_MAX: usize = 1_000;
/// Output and errors in one statement: more would hold the writer for too long.
pub(crate) const SETTLE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long the first settlement of a group waits for others.
pub(crate) const SETTLE_GROUP: Duration = Duration::from_millis(2);
/// Lost runs settled in one statement.
pub(crate) const LOST_PER_BATCH_MAX: usize = 500;
/// A cursor is raised at most once in this long...
pub(crate) const RAISE_EVERY: Duration = Duration::from_secs(5);
/// ...unless it lags by this many ticks.
pub(crate) const RAISE_LAG_TICKS: u32 = 48;
/// How often somebody looks whether a cursor is to be raised.
pub(crate) const RAISE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a failure of the store a loop waits this long.
pub(crate) const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// Pruning happens this often, this many runs at a time.
pub(crate) const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// The first time comes soon, for nodes that do not live for an hour.
pub(crate) const PRUNE_FIRST: Duration = Duration::from_secs(60);
pub(crate) const PRUNE_BATCH: usize = 1_000;
/// A claim loop without a hint looks this often for what waits.
pub(crate) const WAITING_LOOK_EVERY: Duration = Duration::from_secs(5);
/// Late runs started per second at least, however quiet the node was before (I14).
pub(crate) const LATE_STARTS_PER_SECOND_MIN: f64 = 50.0;
