//! What an operator may set, and the limits that the loops keep.

use std::{net::SocketAddr, time::Duration};

use everytick_domain::time::Span;
use everytick_store::NodeProcess;

#[derive(Clone, Debug)]
pub struct Settings {
    pub node: String,
    pub lease: Span,
    /// How many runs this node works on at once.
    pub slots: usize,
    /// How many of a hundred slots one job may use.
    pub max_job_share: u8,
    /// How long ended runs are kept.
    pub history: Span,
    /// How long the rows of the audit trail are kept.
    pub audit_retention: Span,
    /// How often changes of jobs and holders are looked for when no hint came.
    pub poll: Duration,
    /// How often waiting runs are looked for when no hint came.
    pub look: Duration,
    /// Where this node stands: partitions that call a region home go to its nodes.
    pub region: Option<String>,
    /// Whether this node plays ticks and delivers runs. One that does not only shows itself.
    pub holds: bool,
    /// This process, as others see it in the node's lease.
    pub process: Option<NodeProcess>,
    /// Where this node answers its API.
    pub listen: Vec<SocketAddr>,
    /// Replace a living process of the same node name.
    pub replace_node: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: "local".to_owned(),
            lease: Span::seconds(15),
            slots: 1_000,
            max_job_share: crate::memory::JOB_SHARE_DEFAULT,
            history: Span::days(90),
            audit_retention: Span::days(400),
            poll: Duration::from_secs(1),
            look: Duration::from_secs(5),
            region: None,
            holds: true,
            process: None,
            listen: Vec::new(),
            replace_node: false,
        }
    }
}

impl Settings {
    /// A lease is renewed three times before it would expire.
    pub(crate) fn renew_every(&self) -> Duration {
        Duration::from(self.lease) / 3
    }

    /// Local trust in the lease ends this long after the request that renewed it was sent.
    pub(crate) fn trust(&self) -> Duration {
        Duration::from(self.lease) * 9 / 10
    }

    /// A statement that takes longer than this is unsure: its answer will not be waited for.
    pub(crate) fn statement_timeout(&self) -> Duration {
        Duration::from(self.lease) / 3
    }

    /// A pass that makes no step for this long hangs: each call of it ends within its time-out.
    pub(crate) fn pass_max(&self) -> Duration {
        HANG_MAX + self.statement_timeout() * 2
    }
}

/// How often the loops are checked. Times of these checks are whole multiples of it.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A pass that makes no step for this long, beyond what its calls may take, hangs.
pub(crate) const HANG_MAX: Duration = Duration::from_secs(60);
/// Work that is due and that its loop does not try within this time is not done by any loop.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// What has failed for this long is a reason not to be ready.
pub(crate) const FAILING_MAX: Duration = Duration::from_secs(15);
/// All slots busy for this long is a reason not to be ready.
pub(crate) const SLOTS_BUSY_MAX: Duration = Duration::from_secs(60);
/// A job, or a partition, that waits this long to be loaded is a reason not to be ready...
pub(crate) const LOAD_WAIT_MAX: Duration = Duration::from_secs(30);
/// ...of which so many are followed from one check to the next.
pub(crate) const JOBS_WATCHED_MAX: usize = 10_000;
/// Jobs whose next tick is nearer than this are held in memory.
pub(crate) const HORIZON: Span = Span::seconds(60);
/// The horizon is read again before what was read runs out.
pub(crate) const HORIZON_EVERY: Duration = Duration::from_secs(20);
/// Batches of ticks that are recorded side by side, each of other jobs: while the database writes one, the next is planned.
pub(crate) const RECORDERS: usize = 2;
/// Runs whose work has ended take no slot while their settlement is on its way, up to this many;
pub(crate) const UNSETTLED_MAX: usize = 4_000;
/// ...and where no slot is free, a tick waits this long for one before it is recorded as a run that waits.
pub(crate) const SLOT_PATIENCE: Duration = Duration::from_millis(250);
/// Fewer free slots are not worth a statement of their own, while more are about to be free; where a quarter of all is less, that.
pub(crate) const SLOTS_WORTH_A_BATCH: usize = 250;
/// Ticks in one recording statement.
pub(crate) const TICKS_PER_BATCH_MAX: usize = 1_000;
/// Ranges of skips recorded before anything else has its turn.
pub(crate) const RANGES_PER_PASS_MAX: usize = 50;
/// Jobs read in one statement.
pub(crate) const JOBS_PER_LOAD_MAX: usize = 500;
/// A page of jobs that cannot be loaded is split into so many parts, down to the one job.
pub(crate) const LOAD_SPLITS: usize = 4;
/// A job that cannot be loaded alone is tried again after this long, then after twice as long each time...
pub(crate) const ASIDE_FIRST: Duration = Duration::from_secs(1);
/// ...and at the most this long.
pub(crate) const ASIDE_MAX: Duration = Duration::from_secs(30);
/// Changes read in one statement: narrow rows, and many when jobs are registered in bulk.
pub(crate) const CHANGES_PER_LOOK_MAX: usize = 4_000;
/// Jobs of the horizon read at once. Each page costs a look into every partition, so a node that takes over 40,000 jobs
/// reads them in ten pages.
pub(crate) const JOBS_PER_HORIZON_MAX: usize = 4_000;
/// Places of the horizon looked at in one statement: narrow rows.
pub(crate) const PLACES_PER_LOOK_MAX: usize = 10_000;
/// Runs that workers have, and that are remembered as open beyond twice those that were read, before they are read again.
pub(crate) const OPEN_UNTOLD_MAX: usize = 64;
/// Parts of the horizon read side by side.
pub(crate) const HORIZONS_AT_ONCE: usize = 3;
/// Runs claimed in one statement.
pub(crate) const CLAIMS_PER_BATCH_MAX: usize = 500;
/// Jobs that searches for delegated runs skip because they use all the slots they may.
pub(crate) const FULL_DELEGATED_MAX: usize = 1_000;
/// Waiting runs looked at when there is no slot for any.
pub(crate) const LOOK_WITHOUT_SLOT_MAX: usize = 100;
/// How often a node looks for steps that others have left; its own it takes up at once.
pub(crate) const FLOWS_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Flows read in one page; each is advanced by a call of its own.
pub(crate) const FLOWS_PER_BATCH_MAX: usize = 100;
/// Transactions of one flow in one pass: a flow that starts many jobs at once goes on in the next.
pub(crate) const FLOW_STEPS_PER_PASS_MAX: usize = 10;
/// A flow that could not be advanced is tried again after this, twice this, ...
pub(crate) const FLOW_BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// ... at most this: a flow that only met a fault is advanced within two lease times after the fault.
pub(crate) const FLOW_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// After so many failures, about an hour, the next jobs of a flow are skipped with the reason `error`...
pub(crate) const FLOW_FAILURES_MAX: u32 = 720;
/// ... and after so many where the database refuses the data itself, which more tries do not mend.
pub(crate) const FLOW_REFUSALS_MAX: u32 = 5;
/// Flows that failed before and are tried again in one pass.
pub(crate) const FLOW_RETRIES_PER_PASS_MAX: usize = 2;
/// Flows set aside at a time; others that fail are tried again in every pass.
pub(crate) const FLOWS_ASIDE_MAX: usize = 10_000;
/// Settlements in one statement.
pub(crate) const SETTLES_PER_BATCH_MAX: usize = 1_000;
/// Output and errors in one statement: more would hold the writer for too long.
pub(crate) const SETTLE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long the first settlement of a group waits for others.
pub(crate) const SETTLE_GROUP: Duration = Duration::from_millis(2);
/// Claims in memory that are compared in one statement.
pub(crate) const CLAIMS_PER_COMPARISON_MAX: usize = 1_000;
/// A settlement that could not be filed is tried again after this pause, and after twice as long each time...
pub(crate) const SETTLE_RETRY_FIRST: Duration = Duration::from_millis(100);
/// ...up to this.
pub(crate) const SETTLE_RETRY_MAX: Duration = Duration::from_secs(5);
/// How often the age of the oldest one is measured,
pub(crate) const UNSETTLED_LOOK_EVERY: Duration = Duration::from_secs(1);
/// from which age on it is logged,
pub(crate) const UNSETTLED_WARN_AFTER: Duration = Duration::from_secs(10);
/// and how often.
pub(crate) const UNSETTLED_WARN_EVERY: Duration = Duration::from_secs(60);
/// A waiting run that could not be claimed or cancelled, because another session has locked it, is left alone for this long.
pub(crate) const SET_ASIDE: Duration = Duration::from_millis(500);
/// A look for lost runs may take this long.
pub(crate) const REAP_LIMIT: Duration = Duration::from_secs(30);
/// Lost runs settled in one statement.
pub(crate) const LOST_PER_BATCH_MAX: usize = 500;
/// A cursor is raised at most once in this long...
pub(crate) const RAISE_EVERY: Duration = Duration::from_secs(5);
/// ...unless it lags by this many ticks.
pub(crate) const RAISE_LAG_TICKS: u32 = 48;
/// Cursors that are chosen to be raised at once.
pub(crate) const RAISES_PER_LOOK_MAX: usize = 20_000;
/// How often somebody looks whether a cursor is to be raised.
pub(crate) const RAISE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// A run that could not be sent, for want of descriptors, is handed back after this pause.
pub(crate) const UNSENT_PAUSE: Duration = Duration::from_secs(1);
/// After a failure of the store a loop waits this long.
pub(crate) const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// A node that starts tries this long to join before it gives up.
pub(crate) const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// How often a node that starts looks whether the lease under its name was renewed or has expired.
pub(crate) const NAME_HELD_LOOK: Duration = Duration::from_millis(500);
/// Jobs of which a delivery has shown what they need of a node.
pub(crate) const LEARNED_NEEDS_MAX: usize = 10_000;
/// Pruning happens this often, this many runs at a time.
pub(crate) const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// The first time comes soon, for nodes that do not live for an hour.
pub(crate) const PRUNE_FIRST: Duration = Duration::from_secs(60);
pub(crate) const PRUNE_BATCH: usize = 1_000;
/// A job whose waiting runs are blocked by a run that is in progress elsewhere is read again this often.
pub(crate) const BLOCKED_LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many at a time of those that are blocked by a run between two attempts.
pub(crate) const BLOCKED_LOOKS_MAX: usize = 100;
/// Whether a run that we work on is still ours is looked at this often, once it has lasted as long: somebody may have cancelled
/// it through another node.
pub(crate) const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(800);
/// So many of them at a time. Whoever renews the lease looks at all.
pub(crate) const CANCEL_LOOK_MAX: usize = 1_000;
/// A partition that nobody has taken for this long may be taken by anybody.
pub(crate) const UNHELD_MAX: Duration = Duration::from_secs(2);
/// How often the normal rate is estimated anew while late runs wait. It walks over the jobs in memory, so not at every look.
pub(crate) const RATE_ESTIMATED_EVERY: Duration = Duration::from_secs(5);
/// Of the slots, one in this many is kept from late runs, so that ticks on time find one while a backlog drains (I14).
pub(crate) const SLOTS_PER_ONE_KEPT: usize = 4;
/// A walk for dead schedules looks at so many jobs at a time...
pub(crate) const DETECT_JOBS_PER_PAGE: usize = 200;
/// ...and pauses in between, so that a walk over 40,000 jobs takes some minutes and little of the database.
pub(crate) const DETECT_PAGE_EVERY: Duration = Duration::from_secs(1);
/// Between two walks.
pub(crate) const DETECT_WALK_EVERY: Duration = Duration::from_secs(60);
/// Beyond two leases, a tick that is not on the record after this long is overdue.
pub(crate) const DEAD_AFTER: Span = Span::seconds(60);
/// How many jobs are remembered from one walk to the next.
pub(crate) const SUSPECTS_MAX: usize = 10_000;
/// How many ticks of a dead schedule the log names.
pub(crate) const TICKS_NAMED_MAX: usize = 10;
/// Workers that wait in one node, over all queues.
pub(crate) const WAITING_CLAIMS_MAX: usize = 10_000;
/// How often queues are looked at for those who wait, where no hint came.
pub(crate) const QUEUE_POLL: Duration = Duration::from_millis(200);
/// How often somebody looks whether workers were lost: a lost run is back within its lease and a second.
pub(crate) const WATCH_EVERY: Duration = Duration::from_millis(400);
/// How often somebody looks whether what workers hold has to give way.
pub(crate) const GIVE_WAY_EVERY: Duration = Duration::from_secs(1);
/// Jobs of which runs in queues give way in one transaction.
pub(crate) const GIVE_WAY_JOBS_MAX: usize = 100;
/// Whoever does not lead leaves this much to the leader.
pub(crate) const WATCH_GRACE: Span = Span::millis(400);
/// How often backfills are moved on...
pub(crate) const BACKFILL_EVERY: Duration = Duration::from_secs(1);
/// ...so many of them found in one look.
pub(crate) const BACKFILLS_PER_LOOK_MAX: usize = 100;
/// How often a node looks for backlogs to work off; while there is one, batch follows batch.
pub(crate) const BACKLOG_EVERY: Duration = Duration::from_secs(1);
/// Batches worked off before the loop looks whether the node stops, and lets others write.
pub(crate) const BACKLOG_BATCHES_MAX: usize = 1_000;
