//! Prints the next ticks of a schedule as a table, for `cron next` and for `job next`.

use serde::Deserialize;

use crate::output::{Output, Text, Tone};

#[derive(Debug, Deserialize)]
pub(crate) struct PreviewTick {
    pub(crate) at: String,
    pub(crate) local: String,
    #[serde(default)]
    pub(crate) note: Option<String>,
}

/// Prints the columns UTC, LOCAL if it differs from UTC, and NOTE if a clock change affects a tick.
pub(crate) fn print(out: Output, ticks: &[PreviewTick]) -> std::io::Result<()> {
    let zoned = ticks.iter().any(|tick| tick.local != tick.at && !tick.local.ends_with("+00:00"));
    let noted = ticks.iter().any(|tick| tick.note.is_some());
    let mut header = vec!["UTC"];
    header.extend(zoned.then_some("LOCAL"));
    header.extend(noted.then_some("NOTE"));
    let rows = ticks.iter().map(|tick| {
        let mut row = vec![Text::plain(&tick.at)];
        row.extend(zoned.then(|| Text::plain(&tick.local)));
        row.extend(noted.then(|| Text::new(tick.note.as_deref().unwrap_or_default(), Tone::Warn)));
        row
    });
    out.table(&header, rows.collect())
}
