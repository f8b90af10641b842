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
    /// What a receiver has accepted stays a claim of the node that sent it, and is lost with it.
    AcceptedStaysWithNode,
}

impl Mutant {
    pub const ALL: [Self; 35] = [
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
        Self::AcceptedStaysWithNode,
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

/// Reads which mistake this process is to make on every thread, and which loop is to fail, from the variables
/// `EVERYTICK_MUTANT` and `EVERYTICK_LOOP_FAULT` (such as `panic:settle`). Without the feature `mutants` it does nothing.
///
/// # Errors
/// A variable names no mistake or no fault.
pub fn set_from_env(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    #[cfg(feature = "mutants")]
    {
        if let Some(name) = variable("EVERYTICK_MUTANT") {
            let mutant = Mutant::from_name(&name).ok_or(format!("EVERYTICK_MUTANT: {name:?} is not a mistake"))?;
            // The first one stays.
            let _ = EVERYWHERE.set(mutant);
        }
        if let Some(text) = variable("EVERYTICK_LOOP_FAULT") {
            let fault = LoopFault::read(&text).ok_or(format!("EVERYTICK_LOOP_FAULT: {text:?} is not a fault"))?;
            let _ = FAULT_EVERYWHERE.set(fault);
        }
    }
    #[cfg(not(feature = "mutants"))]
    let _ = variable;
    Ok(())
}

/// What a test does to a loop of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopFault {
    Panic(&'static str),
    /// It begins a pass that never ends.
    Hang(&'static str),
}

impl LoopFault {
    /// Whether this fault is to happen now, on this thread.
    #[must_use]
    pub fn is_on(self) -> bool {
        #[cfg(feature = "mutants")]
        return FAULT.get() == Some(self) || FAULT_EVERYWHERE.get() == Some(&self);
        #[cfg(not(feature = "mutants"))]
        false
    }

    #[cfg(feature = "mutants")]
    fn read(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        // Read once in the life of a process.
        let name: &'static str = name.to_owned().leak();
        match kind {
            "panic" => Some(Self::Panic(name)),
            "hang" => Some(Self::Hang(name)),
            _ => None,
        }
    }
}

/// Lets a loop fail, or none, on this thread from here on.
#[cfg(feature = "mutants")]
pub fn set_loop_fault(fault: Option<LoopFault>) {
    FAULT.set(fault);
}

#[cfg(feature = "mutants")]
static EVERYWHERE: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();
#[cfg(feature = "mutants")]
static FAULT_EVERYWHERE: std::sync::OnceLock<LoopFault> = std::sync::OnceLock::new();

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
    static FAULT: std::cell::Cell<Option<LoopFault>> = const { std::cell::Cell::new(None) };
}

/// Makes one mistake, or none, on this thread from here on.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ON.set(mutant);
}
