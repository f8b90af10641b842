//! Prints the next ticks of a schedule as a table, for `cron next` and for `job next`.

use serde::Deserialize;

use crate::output::{Output, Text, Tone};

/// The ticks of a preview, as the API answers them.
#[derive(Debug, Deserialize)]
pub(crate) struct Ticks {
    ticks: Vec<PreviewTick>,
    #[serde(default)]
    nonexistent: Vec<PreviewTick>,
}

/// A tick, or times that do not exist and have no tick: `at` is then the instant of the clock change.
#[derive(Debug, Deserialize)]
struct PreviewTick {
    at: String,
    local: String,
    #[serde(default)]
    note: Option<String>,
}

impl From<everytick_domain::schedule::Preview> for Ticks {
    fn from(preview: everytick_domain::schedule::Preview) -> Self {
        let ticks = preview.ticks.into_iter();
        let ticks = ticks.map(|tick| PreviewTick { at: tick.at.to_string(), local: tick.local, note: tick.note });
        let absent = preview.nonexistent.into_iter();
        let absent =
            absent.map(|times| PreviewTick { at: times.at.to_string(), local: times.local, note: Some(times.note) });
        Self { ticks: ticks.collect(), nonexistent: absent.collect() }
    }
}

impl Ticks {
    /// Shows the ticks of a job without a zone in the local zone.
    pub(crate) fn in_local_zone(self, out: Output) -> Self {
        let shown = |tick: PreviewTick| PreviewTick { local: out.time(&tick.at), ..tick };
        Self { ticks: self.ticks.into_iter().map(shown).collect(), ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ticks.is_empty() && self.nonexistent.is_empty()
    }

    /// Prints the columns UTC, LOCAL if it differs from UTC and the output is not in UTC, and NOTE if a clock change affects a
    /// tick. Times that do not exist are rows without a UTC time, in the order of time.
    pub(crate) fn print(&self, out: Output) -> std::io::Result<()> {
        let zoned = self.ticks.iter().any(|tick| tick.local != tick.at && !tick.local.ends_with("+00:00"));
        let zoned = (zoned || !self.nonexistent.is_empty()) && !out.times().is_utc();
        let noted = self.ticks.iter().chain(&self.nonexistent).any(|tick| tick.note.is_some());
        let mut header = vec!["UTC"];
        header.extend(zoned.then_some("LOCAL"));
        header.extend(noted.then_some("NOTE"));
        let row = |utc: &str, tick: &PreviewTick| {
            let mut row = vec![Text::plain(utc)];
            row.extend(zoned.then(|| Text::plain(&tick.local)));
            row.extend(noted.then(|| Text::new(tick.note.as_deref().unwrap_or_default(), Tone::Warn)));
            row
        };
        let mut rows: Vec<_> = self.ticks.iter().map(|tick| (&tick.at, row(&tick.at, tick))).collect();
        rows.extend(self.nonexistent.iter().map(|times| (&times.at, row("-", times))));
        rows.sort_by_key(|(at, _)| *at); // RFC 3339 in UTC sorts by time
        out.table(&header, rows.into_iter().map(|(_, row)| row).collect())
    }
}
