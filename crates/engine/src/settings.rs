//! The settings of an operator, and the limits of the loops.

use std::{net::SocketAddr, time::Duration};

use everytick_domain::{access::RunKey, time::Span};
use everytick_store::NodeProcess;

use crate::secrets::Vault;

#[derive(Clone, Debug)]
pub struct Settings {
    pub node: String,
    pub lease: Span,
    /// How many runs this node delivers at the same time.
    pub slots: usize,
    /// The share of the slots that one job may use, in percent.
    pub max_job_share: u8,
    /// How long ended runs are kept.
    pub history: Span,
    /// How long audit rows are kept.
    pub audit_retention: Span,
    /// How often the node polls for changed jobs and partition owners when no hint came.
    pub poll: Duration,
    /// How often the node polls for waiting runs when no hint came.
    pub claim_poll: Duration,
    /// The region of this node. Partitions with this home region are assigned to nodes in it.
    pub region: Option<String>,
    /// Whether this node records ticks and delivers runs. If not, it only has a lease, so that the cluster lists it.
    pub may_own: bool,
    /// The roles of this node, as the list of nodes shows them.
    pub roles: Vec<&'static str>,
    /// This process, as its lease describes it to other nodes.
    pub process: Option<NodeProcess>,
    /// The addresses on which this node serves its API.
    pub listen: Vec<SocketAddr>,
    /// Replace a live process that has the same node name.
    pub replace_node: bool,
    /// Signs the run tokens that deliveries carry. `None`: they carry none.
    pub run_key: Option<RunKey>,
    /// Decrypts the secrets of deliveries. `None`: a job that refers to one fails.
    pub vault: Option<Vault>,
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
            claim_poll: Duration::from_secs(5),
            region: None,
            may_own: true,
            roles: Vec::new(),
            process: None,
            listen: Vec::new(),
            replace_node: false,
            run_key: None,
            vault: None,
        }
    }
}

impl Settings {
    /// A lease is renewed three times within its lifetime.
    pub(crate) fn renew_every(&self) -> Duration {
        Duration::from(self.lease) / 3
    }

    /// Local trust in the lease ends this long after the request that renewed it was sent.
    pub(crate) fn trust(&self) -> Duration {
        Duration::from(self.lease) * 9 / 10
    }

    /// A statement without an answer after this long has an unknown outcome (`Unsure`).
    pub(crate) fn statement_timeout(&self) -> Duration {
        Duration::from(self.lease) / 3
    }

    /// A pass that makes no step for this long hangs: each of its calls ends within its timeout.
    pub(crate) fn pass_max(&self) -> Duration {
        HANG_MAX + self.statement_timeout() * 2
    }
}

/// How often the loops are checked. The limits of these checks are whole multiples of it.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A pass hangs if it makes no step for this long, plus the timeouts of its calls.
pub(crate) const HANG_MAX: Duration = Duration::from_secs(60);
/// If work is due and its loop makes no step for this long, the node is stuck.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// The node is not ready when recording, claiming or loading has failed for this long.
pub(crate) const FAILING_MAX: Duration = Duration::from_secs(15);
/// The node is not ready when all its slots have been busy for this long.
pub(crate) const SLOTS_BUSY_MAX: Duration = Duration::from_secs(60);
/// The node is not ready when a job or a partition has waited this long to be loaded.
pub(crate) const LOAD_WAIT_MAX: Duration = Duration::from_secs(30);
/// The checks count the waiting time of at most this many jobs that are to be loaded.
pub(crate) const JOBS_WATCHED_MAX: usize = 10_000;
/// Jobs whose next tick is nearer than this are kept in memory.
pub(crate) const HORIZON: Span = Span::seconds(60);
/// How often the horizon is read again: well before the part that was read has passed.
pub(crate) const HORIZON_EVERY: Duration = Duration::from_secs(20);
/// How many batches of ticks are recorded concurrently, each of different jobs. While the database writes one, the node plans
/// the next.
pub(crate) const RECORDERS: usize = 2;
/// Runs that have ended use no slot while their settlement is pending, up to this many.
pub(crate) const UNSETTLED_MAX: usize = 4_000;
/// A tick waits this long for a free slot. Then its run is recorded as waiting.
pub(crate) const SLOT_WAIT_MAX: Duration = Duration::from_millis(250);
/// A tick waits at most this long for a slot of its destination, even while other ticks of that destination get slots. It must
/// not become late by waiting.
pub(crate) const PARK_MAX: Span = Span::seconds(5);
/// While more slots are about to become free, ticks are recorded only when `min(this, slots / 4)` slots are free.
pub(crate) const SLOTS_WORTH_A_BATCH: usize = 250;
/// Ticks in one recording statement.
pub(crate) const TICKS_PER_BATCH_MAX: usize = 1_000;
/// Ranges of skips recorded in one pass, so that they do not delay other work.
pub(crate) const RANGES_PER_PASS_MAX: usize = 50;
/// Jobs read in one statement.
pub(crate) const JOBS_PER_LOAD_MAX: usize = 500;
/// A page of jobs that cannot be loaded is split into this many parts, again and again, until the bad job is found.
pub(crate) const LOAD_SPLITS: usize = 4;
/// A job that cannot be loaded alone is retried after this delay, which doubles each time.
pub(crate) const LOAD_RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest delay between two such retries.
pub(crate) const LOAD_RETRY_MAX: Duration = Duration::from_secs(30);
/// Changes read in one statement. The rows are narrow, and bulk registration makes many of them.
pub(crate) const CHANGES_PER_READ_MAX: usize = 4_000;
/// Jobs of the horizon read in one page. Each page costs a lookup in every partition, so a node that acquires
/// partitions with 40,000 jobs reads them in ten pages.
pub(crate) const JOBS_PER_HORIZON_MAX: usize = 4_000;
/// Cursors of the horizon read in one statement. The rows are narrow.
pub(crate) const CURSORS_PER_READ_MAX: usize = 10_000;
/// A queue job is reloaded when memory has more than twice the open runs that were last read, plus this many: workers may
/// report to another node, so this node does not learn that their runs have ended.
pub(crate) const OPEN_UNSEEN_MAX: usize = 64;
/// Parts of the horizon read concurrently.
pub(crate) const HORIZONS_AT_ONCE: usize = 3;
/// Runs claimed in one statement.
pub(crate) const CLAIMS_PER_BATCH_MAX: usize = 500;
/// How many jobs at their slot limit a search for delegated runs can skip.
pub(crate) const FULL_DELEGATED_MAX: usize = 1_000;
/// Waiting runs read when no slot is free.
pub(crate) const PEEK_WITHOUT_SLOT_MAX: usize = 100;
/// The shortest interval between polls for flow steps of other nodes. The node's own steps wake the loop at once.
pub(crate) const FLOWS_POLL_EVERY: Duration = Duration::from_millis(500);
/// Flows read in one page. Each is advanced by its own call.
pub(crate) const FLOWS_PER_BATCH_MAX: usize = 100;
/// Transactions of one flow in one pass. A flow that starts many jobs at once continues in the next pass.
pub(crate) const FLOW_STEPS_PER_PASS_MAX: usize = 10;
/// A flow that could not be advanced is retried after this delay, which doubles each time.
pub(crate) const FLOW_BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest such delay. It is short, so that a flow advances within two lease times after a fault has healed.
pub(crate) const FLOW_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// After this many failures, about an hour, the next jobs of the flow are skipped with the reason `error`.
pub(crate) const FLOW_FAILURES_MAX: u32 = 720;
/// The same limit for failures in which the database refuses the data itself: more retries do not help.
pub(crate) const FLOW_REFUSALS_MAX: u32 = 5;
/// Flows that failed before and are retried in one pass.
pub(crate) const FLOW_RETRIES_PER_PASS_MAX: usize = 2;
/// How many failed flows have a backoff at a time. Beyond this, a failed flow is retried in every pass.
pub(crate) const FLOWS_WITH_BACKOFF_MAX: usize = 10_000;
/// Settlements in one statement.
pub(crate) const SETTLES_PER_BATCH_MAX: usize = 1_000;
/// Bytes of output and errors in one statement. More would block the writer for too long.
pub(crate) const SETTLE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long the first settlement of a group waits for others.
pub(crate) const SETTLE_GROUP: Duration = Duration::from_millis(2);
/// Claims in memory that are compared in one statement.
pub(crate) const CLAIMS_PER_COMPARISON_MAX: usize = 1_000;
/// A settlement that could not be stored is retried after this delay, which doubles each time.
pub(crate) const SETTLE_RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest such delay.
pub(crate) const SETTLE_RETRY_MAX: Duration = Duration::from_secs(5);
/// How often the age of the oldest pending settlement is measured.
pub(crate) const UNSETTLED_CHECK_EVERY: Duration = Duration::from_secs(1);
/// The oldest pending settlement is logged if it is older than this.
pub(crate) const UNSETTLED_WARN_AFTER: Duration = Duration::from_secs(10);
/// How often the oldest pending settlement is logged.
pub(crate) const UNSETTLED_WARN_EVERY: Duration = Duration::from_secs(60);
/// A run that another session has locked is claimed or cancelled again after this delay.
pub(crate) const LOCKED_RETRY_AFTER: Duration = Duration::from_millis(500);
/// The timeout of a search for lost runs.
pub(crate) const REAP_TIMEOUT: Duration = Duration::from_secs(30);
/// Lost runs settled in one statement.
pub(crate) const LOST_PER_BATCH_MAX: usize = 500;
/// A cursor is raised at most once in this time, unless it lags by `RAISE_LAG_TICKS`.
pub(crate) const RAISE_EVERY: Duration = Duration::from_secs(5);
/// A cursor that lags by this many ticks is raised at once.
pub(crate) const RAISE_LAG_TICKS: u32 = 48;
/// Cursors selected in one pass.
pub(crate) const RAISES_PER_PASS_MAX: usize = 20_000;
/// How often the node checks for cursors to raise.
pub(crate) const RAISE_POLL_EVERY: Duration = Duration::from_secs(1);
/// A run that could not be sent for lack of file descriptors is released after this pause.
pub(crate) const UNSENT_PAUSE: Duration = Duration::from_secs(1);
/// How long a loop pauses after the store has failed.
pub(crate) const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// How long a starting node tries to join before it fails.
pub(crate) const JOIN_RETRY_MAX: Duration = Duration::from_secs(30);
/// How often a starting node checks whether the lease under its name was renewed or has expired.
pub(crate) const NAME_IN_USE_POLL: Duration = Duration::from_millis(500);
/// For how many jobs the node remembers what their deliveries need, after a delivery that its own settings forbade.
pub(crate) const LEARNED_NEEDS_MAX: usize = 10_000;
/// How often the leader prunes.
pub(crate) const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// The first pruning comes soon, for nodes that do not run for an hour.
pub(crate) const PRUNE_FIRST: Duration = Duration::from_secs(60);
/// Rows deleted in one pruning statement.
pub(crate) const PRUNE_BATCH: usize = 1_000;
/// A job is reloaded this often while a run in progress on another node blocks its waiting runs.
pub(crate) const BLOCKED_RELOAD_EVERY: Duration = Duration::from_secs(1);
/// Of the jobs whose waiting runs are blocked by a run between two attempts, at most this many are reloaded at a time.
pub(crate) const BLOCKED_RELOADS_MAX: usize = 100;
/// How often the node checks whether it still owns the claims it works on: a user may have cancelled a run through another
/// node. Only runs that have lasted this long are checked.
pub(crate) const CANCEL_POLL_EVERY: Duration = Duration::from_millis(800);
/// How many claims one such check reads. The comparison after each renewal reads all.
pub(crate) const CANCEL_POLL_MAX: usize = 1_000;
/// Any node may take a partition that has had no live owner for this long.
pub(crate) const UNOWNED_MAX: Duration = Duration::from_secs(2);
/// How often the normal rate is estimated while late runs wait. The estimate reads all jobs in memory, so not every pass makes
/// it.
pub(crate) const RATE_ESTIMATED_EVERY: Duration = Duration::from_secs(5);
/// One slot in this many is reserved for runs that are on time, so that late runs do not delay them while a backlog drains
/// (I14).
pub(crate) const SLOTS_PER_RESERVED_SLOT: usize = 4;
/// Jobs in one page of the search for dead schedules.
pub(crate) const DETECT_JOBS_PER_PAGE: usize = 200;
/// The pause between two pages. A search over 40,000 jobs then takes a few minutes and puts little load on the database.
pub(crate) const DETECT_PAGE_EVERY: Duration = Duration::from_secs(1);
/// The pause between two searches for dead schedules.
pub(crate) const DETECT_WALK_EVERY: Duration = Duration::from_secs(60);
/// A tick without a record is overdue after two lease times plus this.
pub(crate) const DEAD_AFTER: Span = Span::seconds(60);
/// How many suspect jobs are remembered from one search to the next.
pub(crate) const SUSPECTS_MAX: usize = 10_000;
/// How many ticks of a dead schedule the log message names.
pub(crate) const TICKS_NAMED_MAX: usize = 10;
/// Workers that wait for work in one node, over all queues.
pub(crate) const WAITING_CLAIMS_MAX: usize = 10_000;
/// The timeout of the statement that stores when a worker last asked for runs of a queue. The worker's claim waits for
/// it.
pub(crate) const ASKED_NOTE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of queues for which a node remembers when it last sent this statement.
pub(crate) const ASKED_QUEUES_MAX: usize = 10_000;
/// How often queues are polled for waiting workers when no hint came.
pub(crate) const QUEUE_POLL: Duration = Duration::from_millis(200);
/// How often a node searches for lost workers. A lost run is available again within its lease plus one second.
pub(crate) const WATCH_EVERY: Duration = Duration::from_millis(400);
/// How often a node searches for runs of workers that a newer run supersedes.
pub(crate) const SUPERSEDE_EVERY: Duration = Duration::from_secs(1);
/// Jobs whose runs in queues are superseded in one transaction.
pub(crate) const SUPERSEDE_JOBS_MAX: usize = 100;
/// How long the other nodes leave an overdue claim to the leader.
pub(crate) const WATCH_GRACE: Span = Span::millis(400);
/// Backfills found by one query.
pub(crate) const BACKFILLS_PER_READ_MAX: usize = 100;
/// How often a node polls for backlogs. While a backlog exists, one batch follows the other.
pub(crate) const BACKLOG_EVERY: Duration = Duration::from_secs(1);
/// Batches in one pass. The pause that follows lets other transactions write.
pub(crate) const BACKLOG_BATCHES_MAX: usize = 1_000;
/// How often the leader checks whether a tenant was suspended, resumed or deleted.
pub(crate) const TENANT_WORK_EVERY: Duration = Duration::from_secs(1);
/// Tenants for which one pass works.
pub(crate) const TENANTS_PER_PASS_MAX: usize = 10;
/// Waiting workers of one tenant in one node.
pub(crate) const TENANT_WAITING_CLAIMS_MAX: usize = 1_000;
