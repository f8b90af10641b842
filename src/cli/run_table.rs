//! The table of runs. It fits 80 columns, or the terminal if that is wider: ids are short, times have no offset, and long names
//! and notes are cut. `run get` and `-o json` show everything.

use super::{
    fit::{self, Column, Layout, Precision, times_to},
    ids::ShortIds,
    run::RunView,
};
use crate::output::{Output, Text};

/// With less space for notes than this, a narrower layout leaves out other columns.
const NOTE_WANTED: usize = 28;
/// The least space for notes in the other layouts.
const NOTE_MIN: usize = 14;
/// The least space for notes if the names are whole: enough for an exit code.
const NOTE_LEAST: usize = 11;
/// The least space for the name of a job.
const JOB_MIN: usize = 8;

/// Layouts, the widest first. Each leaves out columns or precision that are less useful than the reason of a failure.
const LAYOUTS: [Shown; 6] = [
    Shown { took: true, precision: Precision::Seconds, note_min: NOTE_WANTED, job_min: None },
    Shown { took: false, precision: Precision::Seconds, note_min: NOTE_WANTED, job_min: None },
    Shown { took: false, precision: Precision::Minutes, note_min: NOTE_WANTED, job_min: None },
    Shown { took: false, precision: Precision::Minutes, note_min: NOTE_MIN, job_min: None },
    Shown { took: false, precision: Precision::Minutes, note_min: NOTE_LEAST, job_min: None },
    Shown { took: false, precision: Precision::Minutes, note_min: NOTE_MIN, job_min: Some(JOB_MIN) },
];

/// What a table shows. Without `job_min`, names are whole.
#[derive(Clone, Copy, Debug)]
struct Shown {
    took: bool,
    precision: Precision,
    note_min: usize,
    job_min: Option<usize>,
}

pub(crate) fn print(out: Output, runs: &[RunView]) -> anyhow::Result<()> {
    fit::first_that_fits(out, LAYOUTS.map(|shown| layout(out, runs, shown)))
}

fn layout(out: Output, runs: &[RunView], shown: Shown) -> Layout {
    let is_brief = shown.precision == Precision::Minutes;
    let ids = ShortIds::of(runs.iter().map(|run| run.id.as_str()));
    let (zone, times) = times_to(shown.precision, out, runs.iter().map(|run| run.scheduled_at.as_str()));
    let jobs = runs.iter().map(|run| Text::strong(&run.job));
    let mut columns = vec![
        Column::whole("ID", runs.iter().map(|run| Text::plain(ids.short(&run.id)))),
        match shown.job_min {
            None => Column::whole("JOB", jobs),
            Some(min) => Column::cut("JOB", min, jobs),
        },
        Column::whole("STATE", runs.iter().map(RunView::state)),
        Column::whole(format!("SCHEDULED{zone}"), times.iter().map(Text::plain)),
    ];
    if shown.took {
        columns.push(Column::whole("TOOK", runs.iter().map(|run| Text::number(run.duration()))).kept());
    }
    columns
        .push(Column::cut("NOTE", shown.note_min, runs.iter().map(|run| Text::plain(note(out, run, is_brief)))).kept());
    Layout::of(columns)
}

/// The note of a run: the reason of the skip or failure, repeated attempts, an unusual cause, and the author of the
/// cancellation. A brief note has only the reason, if there is one.
fn note(out: Output, run: &RunView, is_brief: bool) -> String {
    // The reason of a skip and the cause of its run can be the same word: the parents of a flow.
    let is_reason = run.skip_reason.as_ref() == Some(&run.cause);
    let cause = (run.cause != "tick" && !is_reason).then(|| run.cause.clone());
    let attempt = (run.attempt > 1).then(|| format!("attempt {}", run.attempt));
    let by = run.cancelled_by.as_ref().map(|by| format!("by {by}"));
    let reason = match (&run.skip_reason, run.count) {
        (Some(reason), Some(count)) => format!("{reason}, {count} ticks"),
        // The status comes before the other words, which may be cut.
        _ => run.note(out).replacen("the receiver answered ", "HTTP ", 1),
    };
    if is_brief && !reason.is_empty() {
        return reason;
    }
    // The reason comes first, because a long note is cut at its end.
    let parts = [Some(reason), attempt, cause, by].into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn a_word_that_is_both_the_reason_and_the_cause_is_shown_once() {
        let note = |text: &str| note(Output::new(Format::Table), &serde_json::from_str(text).unwrap(), false);
        assert_eq!(note(r#"{"state": "skipped", "skip_reason": "parent", "cause": "parent"}"#), "parent");
        let failed =
            r#"{"state": "failed", "cause": "tick", "error": "the receiver answered 500 Internal Server Error"}"#;
        assert_eq!(note(failed), "HTTP 500 Internal Server Error");
        assert_eq!(note(r#"{"state": "skipped", "skip_reason": "overlap", "cause": "request"}"#), "overlap, request");
    }
}
