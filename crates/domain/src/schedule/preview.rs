//! The preview of a schedule: its next ticks in local time and UTC, with every clock change between them.

use serde::Serialize;

use crate::time::{DbTime, Span};

use super::{Schedule, When, date::DAY, search::Cron, zone::Stretch};

/// Most ticks that a preview shows.
pub const PREVIEW_TICKS_MAX: usize = 1_000;

/// How many clock changes one note describes in full. Ticks of a sparse schedule can be years apart.
const CHANGES_SHOWN_MAX: usize = 3;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Preview {
    pub description: String,
    pub ticks: Vec<PreviewTick>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PreviewTick {
    pub at: DbTime,
    /// The same instant in the schedule's zone.
    pub local: String,
    /// The clock changes since the previous tick, whether this tick was shifted out of a gap, and whether a calendar excludes
    /// it.
    pub note: Option<String>,
    /// The calendar that excludes it. The tick will be a skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_by: Option<String>,
}

impl Schedule {
    /// The first ticks after `from`, at most [`PREVIEW_TICKS_MAX`].
    #[must_use]
    pub fn preview(&self, from: DbTime, count: usize) -> Preview {
        let mut before = from;
        let ticks = std::iter::successors(self.next_after(from), |tick| self.next_after(*tick))
            .take(count.min(PREVIEW_TICKS_MAX))
            .map(|at| {
                let note = match &self.when {
                    When::Cron(cron) => note(cron, before, at),
                    When::Every { .. } | When::At(_) => None,
                };
                before = at;
                let excluded_by = self.excluded(at).map(|excluded| excluded.calendar.to_owned());
                let skipped = excluded_by.as_ref().map(|calendar| format!("skipped: calendar {calendar}"));
                let words: Vec<String> = note.into_iter().chain(skipped).collect();
                let note = (!words.is_empty()).then(|| words.join("; "));
                PreviewTick { at, local: self.local(at), note, excluded_by }
            })
            .collect();
        Preview { description: self.describe(), ticks }
    }
}

fn note(cron: &Cron, before: DbTime, tick: DbTime) -> Option<String> {
    let (before, tick) = (before.millis().div_euclid(1_000).max(0), tick.millis().div_euclid(1_000));
    let mut changes = Vec::new();
    let mut stretch = cron.zone.stretch_at(before);
    while stretch.end <= tick {
        stretch = cron.zone.stretch_at(stretch.end);
        changes.push(stretch);
    }
    let last = changes.last().copied()?;
    let mut words = match changes.len() {
        count if count <= CHANGES_SHOWN_MAX => changes.iter().map(change).collect::<Vec<_>>().join("; "),
        many => format!("{many} clock changes, the last of them: {}", change(&last)),
    };
    if last.start == tick
        && let Some(skipped) = cron.shifted_time(&last)
    {
        words.push_str(&format!("; {} does not exist that day, so it fires right after", clock(skipped)));
    }
    Some(words)
}

/// `clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00)`
fn change(stretch: &Stretch) -> String {
    let moved = Span::seconds((stretch.offset - stretch.before).unsigned_abs());
    let way = if stretch.offset > stretch.before { "forward" } else { "back" };
    let at = DbTime::from_millis(stretch.start.saturating_mul(1_000));
    let (from, to) = (stretch.start + stretch.before, stretch.start + stretch.offset);
    format!("clocks go {way} {moved} at {at} ({} -> {})", clock(from), clock(to))
}

/// The time of day of a civil second; seconds are shown only if they are not zero.
fn clock(civil: i64) -> String {
    let second = civil.rem_euclid(DAY);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    if second == 0 { format!("{hour:02}:{minute:02}") } else { format!("{hour:02}:{minute:02}:{second:02}") }
}
