//! Mutants: named defects that the simulator must detect. Without the feature `mutants`, each is `false` at compile time. Code
//! that only a mutant executes is in the `mutants.rs` of its crate.

/// A design rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Ticks that were planned under an older epoch are recorded.
    NoEpochCheck,
    /// A cursor is raised before the commit of its ticks is confirmed.
    CursorRaisedBeforeAck,
    /// A cursor is raised although the job's epoch has changed.
    RaiseWithoutEpoch,
    /// A range of skips is recorded although the epoch or the cursor has changed since it was planned.
    RangeWithoutCompareAndSet,
    /// A range of skips is recorded without checking for rows of its ticks.
    RangeWithoutProbe,
    /// The next tick is computed from the current time, not from the last recorded tick.
    NextFromNow,
    /// An edit does not record the ticks that were due under the old definition.
    EditRecordsNoOldTicks,
    /// The instant from which an edit applies is read before the job is locked.
    EditInstantBeforeLock,
    /// A settlement does not check the fence of the claim.
    UnfencedSettle,
    /// A run is sent before the commit that claims it.
    DispatchBeforeCommit,
    /// A run no longer counts as open when its outcome arrives, although it is not settled yet.
    OpenRunRemovedAtOutcome,
    /// Memory is not reloaded after a statement with an unknown outcome.
    MemoryKeptAfterUnsure,
    /// Ticks are recorded although they are in the future on the database clock.
    NoClockCheck,
    /// Late runs start as fast as slots become free.
    LateRateUnbounded,
    /// A process starts with the incarnation of its predecessor.
    IncarnationReused,
    /// A partition is released while statements about it are executing.
    ReleasedDuringStatement,
    /// A partition is released while an unanswered statement about it may still take effect.
    ReleasedWhileUnsure,
    /// A partition is acquired again while its release may still take effect.
    ReleaseForgotten,
    /// A stopping node releases everything while its acquisition may still take effect.
    RetiredWhileUnsure,
    /// Data read before a change of partition ownership is applied after it, although another node may own the partition.
    PartitionGenerationNotChecked,
    /// After an unsure answer, a job is reloaded before the fence is raised.
    ReadWhileUnsure,
    /// A dead node's partitions are taken over without raising the fence of its lease.
    TakeOverUnfenced,
    /// Overlap checks do not count a run that waits or is between two attempts.
    OverlapOnClaimedOnly,
    /// A cancelled run keeps the fence that its worker knows.
    CancelKeepsFence,
    /// The next attempt of a run has the same fence as the previous one.
    RetryKeepsFence,
    /// Under `queue`, a tick starts at once although other runs wait.
    QueueJumped,
    /// Under `queue`, a request does not raise the epoch, so ticks planned before it stay valid.
    RequestKeepsEpoch,
    /// Under `cancel_previous`, the run in progress continues and the newer run waits for it.
    NeverSupersedes,
    /// A new calendar version does not raise the epochs of the jobs that use it.
    CalendarKeepsEpoch,
    /// A worker's claim does not check the job's other runs.
    QueueClaimUnchecked,
    /// A worker's claim does not raise the fence.
    QueueClaimKeepsFence,
    /// A backfill's position advances before the runs that it passes are committed.
    BackfillPositionFirst,
    /// A child's run id is derived from a parent's run, not from the flow: it runs twice if two parents end at once.
    FanInByParent,
    /// The step of an ended run is deleted before the children are committed.
    StepDroppedFirst,
    /// Of several ticks of a job that are due together, the oldest runs.
    OldestTickRuns,
    /// Accepted work stays claimed by the node that sent it, and is lost with that node.
    AcceptedStaysWithNode,
}

impl Mutant {
    pub const ALL: [Self; 36] = [
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
        Self::OpenRunRemovedAtOutcome,
        Self::MemoryKeptAfterUnsure,
        Self::NoClockCheck,
        Self::LateRateUnbounded,
        Self::IncarnationReused,
        Self::ReleasedDuringStatement,
        Self::ReleasedWhileUnsure,
        Self::ReleaseForgotten,
        Self::RetiredWhileUnsure,
        Self::PartitionGenerationNotChecked,
        Self::ReadWhileUnsure,
        Self::TakeOverUnfenced,
        Self::OverlapOnClaimedOnly,
        Self::CancelKeepsFence,
        Self::RetryKeepsFence,
        Self::QueueJumped,
        Self::RequestKeepsEpoch,
        Self::NeverSupersedes,
        Self::CalendarKeepsEpoch,
        Self::QueueClaimUnchecked,
        Self::QueueClaimKeepsFence,
        Self::BackfillPositionFirst,
        Self::FanInByParent,
        Self::StepDroppedFirst,
        Self::OldestTickRuns,
        Self::AcceptedStaysWithNode,
    ];

    /// Whether this mutant is active on this thread.
    #[must_use]
    pub fn is_on(self) -> bool {
        #[cfg(feature = "mutants")]
        return ON.get() == Some(self) || EVERYWHERE.get() == Some(&self);
        #[cfg(not(feature = "mutants"))]
        false
    }
}

impl Mutant {
    /// Finds a mutant by its variant name.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
    }
}

/// Activates a mutant and a loop fault for all threads, from the variables `EVERYTICK_MUTANT` and `EVERYTICK_LOOP_FAULT` (such
/// as `panic:settle`). Without the feature `mutants` it does nothing.
///
/// # Errors
/// A variable does not name a known mutant or fault.
pub fn set_from_env(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    #[cfg(feature = "mutants")]
    {
        if let Some(name) = variable("EVERYTICK_MUTANT") {
            let mutant = Mutant::from_name(&name).ok_or(format!("EVERYTICK_MUTANT: {name:?} is not a mutant"))?;
            // If a mutant is already set, it stays.
            let _ = EVERYWHERE.set(mutant);
        }
        if let Some(text) = variable("EVERYTICK_LOOP_FAULT") {
            let fault = LoopFault::read(&text)
                .ok_or(format!("EVERYTICK_LOOP_FAULT: {text:?} is not a fault; write panic:LOOP or hang:LOOP"))?;
            let _ = FAULT_EVERYWHERE.set(fault);
        }
    }
    #[cfg(not(feature = "mutants"))]
    let _ = variable;
    Ok(())
}

/// A fault that a test injects into a loop of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopFault {
    Panic(&'static str),
    /// The loop starts a pass that never ends.
    Hang(&'static str),
}

impl LoopFault {
    /// Whether this fault is active on this thread.
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
        // Leaked once per process.
        let name: &'static str = name.to_owned().leak();
        match kind {
            "panic" => Some(Self::Panic(name)),
            "hang" => Some(Self::Hang(name)),
            _ => None,
        }
    }
}

/// Sets or clears the loop fault of this thread.
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

/// Sets or clears the mutant of this thread.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ON.set(mutant);
}
