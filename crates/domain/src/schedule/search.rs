//! Cron in a time zone. Maps the pattern's civil times to instants, one stretch of constant offset at a time, and applies the
//! rules for the clock changes between stretches. Works in seconds since 1970; `Schedule` handles bounds and milliseconds.

use std::sync::Arc;

use super::{
    date::DAY,
    pattern::Pattern,
    spec::{Fold, Gap},
    zone::{Stretch, Zone},
};

/// The longest gap, in seconds, whose times move to its end. In a longer gap a whole date was skipped, and its times do not
/// fire.
const GAP_SHIFTED_MAX: i64 = 3 * 3_600;

/// A search may skip to this many seconds before the next match. The value exceeds the difference between any two offsets
/// of a zone.
const OFFSETS_APART_MAX: i64 = 3 * DAY;

#[derive(Debug)]
pub(super) struct Cron {
    pub(super) pattern: Pattern,
    pub(super) zone: Arc<Zone>,
    pub(super) gap: Gap,
    pub(super) fold: Fold,
    /// The expression with every `H` resolved.
    pub(super) text: String,
}

impl Cron {
    /// The first tick at or after `from`.
    #[inline]
    pub(super) fn first_from(&self, from: i64) -> Option<i64> {
        let mut from = from;
        loop {
            let stretch = self.zone.stretch_at(from);
            if from <= stretch.start && self.shifted_time(&stretch).is_some() {
                return Some(stretch.start);
            }
            let (first, until) = self.civil(&stretch);
            let lowest = first.max(from + stretch.offset);
            // Near the end of the stretch, times before `lowest` may occur again in the next stretch. Farther from the end, the
            // next match is the only candidate, so a sparse pattern can skip the stretches before it.
            let near = stretch.end - from <= OFFSETS_APART_MAX;
            from = match self.pattern.first_from(lowest) {
                Some(at) if at < until => return Some(at - stretch.offset),
                Some(_) | None if near => stretch.end,
                Some(at) => stretch.end.max(at - OFFSETS_APART_MAX),
                None => return None,
            };
        }
    }

    /// How many ticks lie in `from..=to`.
    pub(super) fn count(&self, from: i64, to: i64) -> u64 {
        let mut count = 0;
        let mut from = from;
        while from <= to {
            let stretch = self.zone.stretch_at(from);
            let (first, until) = self.civil(&stretch);
            let lowest = first.max(from + stretch.offset);
            count += self.pattern.count(lowest, until.min(to + 1 + stretch.offset));
            // A shifted time fires at the end of the gap. If that instant matches the pattern too, it is already counted.
            if from <= stretch.start
                && self.shifted_time(&stretch).is_some()
                && self.pattern.count(stretch.start + stretch.offset, stretch.start + stretch.offset + 1) == 0
            {
                count += 1;
            }
            from = stretch.end;
        }
        count
    }

    /// The first civil time inside the gap before this stretch, if it fires at the end of the gap.
    pub(super) fn shifted_time(&self, stretch: &Stretch) -> Option<i64> {
        let length = stretch.offset - stretch.before;
        if self.pattern.elapsed || self.gap == Gap::Skip || length <= 0 || length > GAP_SHIFTED_MAX {
            return None;
        }
        self.pattern.first_from(stretch.start + stretch.before).filter(|time| *time < stretch.start + stretch.offset)
    }

    /// The local times that fire in this stretch, `first..until`, without the pass of a fold that does not fire.
    #[inline]
    fn civil(&self, stretch: &Stretch) -> (i64, i64) {
        let (mut first, mut until) = (stretch.offset, stretch.offset);
        if !self.pattern.elapsed {
            match self.fold {
                Fold::First => first = first.max(stretch.before),
                Fold::Last => until = until.min(stretch.after),
                Fold::Both => {}
            }
        }
        (stretch.start.saturating_add(first), stretch.end.saturating_add(until))
    }
}
