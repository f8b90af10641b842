//! The journal: every change of the simulated database, for the simulator's checker.

use std::sync::Arc;

use everytick_domain::{
    calendar::Calendar,
    ids::{Fence, Incarnation, JobId, RunId, TenantId},
    job::Job,
    run::{SkipReason, State, Verdict},
    time::DbTime,
};

/// One change in the journal, which the simulator's checker reads.
#[derive(Clone, Debug)]
pub enum Entry {
    Created {
        job: Box<Job>,
        effective_at: DbTime,
    },
    /// Written at the commit, even if the reply to the caller is lost.
    Edited {
        job: Box<Job>,
        effective_at: DbTime,
        /// The clock at the commit; `effective_at` may be later.
        at: DbTime,
    },
    /// `by` is the node that recorded the tick; `None` if an edit recorded it or the run was requested.
    Recorded {
        run: RunId,
        job: JobId,
        state: State,
        at: DbTime,
        by: Option<Incarnation>,
        /// It waits, and catch-up chose it.
        late: bool,
        /// It was triggered with `force`: it may run beside other runs of the job.
        force: bool,
    },
    RangeRecorded {
        job: JobId,
        from: DbTime,
        to: DbTime,
        reason: SkipReason,
        by: Option<Incarnation>,
    },
    Claimed {
        run: RunId,
        job: JobId,
        attempt: u32,
        fence: Fence,
        /// Catch-up chose it.
        late: bool,
        by: Incarnation,
        /// The owner of its partition had delegated it to this node.
        delegated: bool,
    },
    /// The owner delegated a waiting run to another node. From then on the run counts as in progress.
    Delegated {
        run: RunId,
        job: JobId,
    },
    /// A search skipped this waiting run, because its row or its job's could not be decoded.
    Unreadable {
        run: RunId,
        job: JobId,
    },
    /// The node to which the run was delegated died or stopped before it claimed the run.
    Undelegated {
        run: RunId,
        job: JobId,
    },
    /// The new state of a calendar, with all its versions.
    CalendarPut {
        tenant: TenantId,
        calendar: Arc<Calendar>,
    },
    /// A lease was created, or its fence was raised.
    Leased {
        node: String,
        incarnation: Incarnation,
        fence: Fence,
    },
    Acquired {
        partition: u16,
        by: Incarnation,
        fence: Fence,
    },
    Released {
        partition: u16,
        by: Incarnation,
    },
    /// The node takes no more partitions.
    Retired {
        by: Incarnation,
    },
    /// `fence` is the fence that the settlement named, `run_fence` the fence of the run.
    Settled {
        run: RunId,
        job: JobId,
        fence: Fence,
        run_fence: Fence,
        was: State,
        verdict: Verdict,
        at: DbTime,
    },
    /// `fence` is the run's new fence; `to` is the newer run that superseded it.
    Cancelled {
        run: RunId,
        job: JobId,
        was: State,
        fence: Fence,
        to: Option<RunId>,
    },
}
