//! Named mistakes that the simulator must find. Without the feature `mutants` each is `false` at compile time.

/// A rule of the design, left out on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    NoEpochCheck,
    CursorRaisedBeforeAck,
    RaiseWithoutEpoch,
    RangeWithoutCompareAndSet,
    RangeWithoutProbe,
    NextFromNow,
    EditRecordsNoOldTicks,
    EditInstantBeforeLock,
    UnfencedSettle,
    DispatchBeforeCommit,
    ActiveForgottenAtOutcome,
    MemoryKeptAfterUnsure,
    NoClockCheck,
    LateRateUnbounded,
    /// A process starts under its predecessor's incarnation.
    IncarnationReused,
    /// A partition is given back while statements about it are under way.
    ReleasedUnderWay,
    /// A partition is given back while a statement about it may still land.
    ReleasedInDoubt,
    /// A partition is taken up again while its release may still land.
    ReleaseForgotten,
    /// A node that stops gives all back while its acquisition may still land.
    RetiredInDoubt,
    /// What was read before partitions changed hands is taken in afterwards, whoever holds them.
    TurnNotChecked,
    /// After an unsure answer a job is read before the fence was raised.
    ReadWhileUnsure,
    /// A dead node's partitions are taken without its lease being fenced.
    TakeOverUnfenced,
    /// A run between two attempts, or one that waits, is not counted when an overlap is judged.
    OverlapOnClaimedOnly,
    /// A cancelled run keeps the fence that its worker has.
    CancelKeepsFence,
    /// The next attempt at a run has the fence of the one before.
    RetryKeepsFence,
    /// Under `queue` a tick starts at once although others wait.
    QueueJumped,
    /// Under `queue` a request leaves standing what was planned before it.
    RequestKeepsEpoch,
    /// Under `cancel_previous` what is in progress goes on, and the newer one waits for it.
    NobodyGivesWay,
    /// A new version of a calendar leaves the epochs of the jobs that name it as they are.
    CalendarKeepsEpoch,
    /// A worker's claim does not look at the job's other runs.
    QueueClaimUnjudged,
    /// A worker's claim leaves the fence as it was.
    QueueClaimKeepsFence,
    /// A backfill's position moves on before the runs that it passes are committed.
    BackfillPositionFirst,
    /// A child's run is made of a parent's, not of the flow: where two parents end at once, it runs twice.
    FanInByParent,
    /// That a run has ended is forgotten before the children are committed.
    StepDroppedFirst,
}

impl Mutant {
    pub const ALL: [Self; 34] = [
        Self::NoEpochCheck,
        Self::CursorRaisedBeforeAck,
        Self::RaiseWithoutEpoch,
        Self::RangeWithoutCompareAndSet,
        Self::RangeWithoutProbe,
        Self::NextFromNow,
        Self::EditRecordsNoOldTicks,
        Self::EditInstantBeforeLock,
        Self::UnfencedSettle,
        Self::DispatchBeforeCommit,
        Self::ActiveForgottenAtOutcome,
        Self::MemoryKeptAfterUnsure,
        Self::NoClockCheck,
        Self::LateRateUnbounded,
        Self::IncarnationReused,
        Self::ReleasedUnderWay,
        Self::ReleasedInDoubt,
        Self::ReleaseForgotten,
        Self::RetiredInDoubt,
        Self::TurnNotChecked,
        Self::ReadWhileUnsure,
        Self::TakeOverUnfenced,
        Self::OverlapOnClaimedOnly,
        Self::CancelKeepsFence,
        Self::RetryKeepsFence,
        Self::QueueJumped,
        Self::RequestKeepsEpoch,
        Self::NobodyGivesWay,
        Self::CalendarKeepsEpoch,
        Self::QueueClaimUnjudged,
        Self::QueueClaimKeepsFence,
        Self::BackfillPositionFirst,
        Self::FanInByParent,
        Self::StepDroppedFirst,
    ];

    /// Whether this mistake is to be made now, on this thread.
    #[must_use]
    pub fn is_on(self) -> bool {
        #[cfg(feature = "mutants")]
        return ON.get() == Some(self) || EVERYWHERE.get() == Some(&self);
        #[cfg(not(feature = "mutants"))]
        false
    }
}

impl Mutant {
    /// By the name it has here.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
    }
}

/// Makes one mistake on every thread, for as long as the process lives: for a binary that the campaign is to find out.
#[cfg(feature = "mutants")]
pub fn set_everywhere(mutant: Mutant) {
    // The first one stands.
    let _ = EVERYWHERE.set(mutant);
}

#[cfg(feature = "mutants")]
static EVERYWHERE: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Makes one mistake, or none, on this thread from here on.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ON.set(mutant);
}
