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
}

impl Mutant {
    pub const ALL: [Self; 14] = [
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
    ];

    /// Whether this mistake is to be made now, on this thread.
    #[must_use]
    pub fn is_on(self) -> bool {
        #[cfg(feature = "mutants")]
        return ON.get() == Some(self);
        #[cfg(not(feature = "mutants"))]
        false
    }
}

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Makes one mistake, or none, on this thread from here on.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ON.set(mutant);
}
