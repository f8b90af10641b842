//! The preview of a schedule: its next ticks in local time and UTC. `clock_change` adds the effects of clock changes.

use serde::Serialize;

use crate::time::DbTime;

use super::{Schedule, When, clock_change::Changes};

/// Maximum number of ticks that a preview shows.
pub const PREVIEW_TICKS_MAX: usize = 1_000;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Preview {
    pub description: String,
    pub ticks: Vec<PreviewTick>,
    /// Times of the schedule that do not exist and do not fire, in the order of their clock changes.
    pub nonexistent: Vec<Nonexistent>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PreviewTick {
    pub at: DbTime,
    /// The same instant in the schedule's zone.
    pub local: String,
    /// What clock changes do to this tick, and whether a calendar excludes it.
    pub note: Option<String>,
    /// The calendar that excludes this tick. The tick will be a skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_by: Option<String>,
}

/// Times of a schedule that a clock change skips, so that they have no tick.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Nonexistent {
    /// The instant of the clock change.
    pub at: DbTime,
    /// The first of the skipped times, without an offset.
    pub local: String,
    pub note: String,
}

impl Schedule {
    /// The first ticks from `from` on, which is included; at most [`PREVIEW_TICKS_MAX`].
    #[must_use]
    pub fn preview(&self, from: DbTime, count: usize) -> Preview {
        let count = count.min(PREVIEW_TICKS_MAX);
        let mut changes = match &self.when {
            When::Cron(cron) => Some(Changes::new(cron, from, (self.first, self.last))),
            When::Every { .. } | When::At(_) => None,
        };
        let ticks: Vec<PreviewTick> = std::iter::successors(self.first_from(from), |tick| self.next_after(*tick))
            .take(count)
            .map(|at| self.preview_tick(at, changes.as_mut().and_then(|changes| changes.note(at))))
            .collect();
        let is_over = ticks.len() < count;
        let nonexistent = changes.map(|changes| changes.nonexistent(is_over)).unwrap_or_default();
        Preview { description: self.describe(), ticks, nonexistent }
    }

    fn preview_tick(&self, at: DbTime, note: Option<String>) -> PreviewTick {
        let excluded_by = self.excluded(at).map(|excluded| excluded.calendar.to_owned());
        let skipped = excluded_by.as_ref().map(|calendar| format!("skipped: calendar {calendar}"));
        let words: Vec<String> = note.into_iter().chain(skipped).collect();
        let note = (!words.is_empty()).then(|| words.join("; "));
        PreviewTick { at, local: self.local(at), note, excluded_by }
    }
}
