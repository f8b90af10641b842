//! The table of runs. It fits 80 columns, or the terminal if that is wider: ids are short, times have no offset, and long names
//! and notes are cut. `run get` and `-o json` show everything.

use super::{
    fit::{GAP, WIDTH_MIN, short_times},
    ids::ShortIds,
    run::RunView,
};
use crate::output::{self, Output, Text};

/// The least space for notes, if there are notes, and for names.
const NOTE_MIN: usize = 14;
const JOB_MIN: usize = 8;

pub(crate) fn print(out: Output, runs: &[RunView]) -> anyhow::Result<()> {
    let ids = ShortIds::of(runs.iter().map(|run| run.id.as_str()));
    let (zone, times) = short_times(out, runs.iter().map(|run| run.scheduled_at.as_str()));
    let scheduled = format!("SCHEDULED{zone}");
    let notes: Vec<String> = runs.iter().map(|run| note(out, run)).collect();
    let took: Vec<String> = runs.iter().map(RunView::duration).collect();
    let widest = |texts: &mut dyn Iterator<Item = usize>, header: &str| texts.max().unwrap_or(0).max(header.len());
    let used = [
        widest(&mut runs.iter().map(|run| ids.short(&run.id).len()), "ID"),
        widest(&mut runs.iter().map(|run| run.state().width()), "STATE"),
        widest(&mut times.iter().map(String::len), &scheduled),
        widest(&mut took.iter().map(String::len), "TOOK"),
    ];
    let left = out.columns().max(WIDTH_MIN).saturating_sub(used.iter().map(|width| width + GAP).sum());
    let job = widest(&mut runs.iter().map(|run| run.job.chars().count()), "JOB");
    let note = widest(&mut notes.iter().map(|note| note.chars().count()), "NOTE");
    let (job, note) = share(left.saturating_sub(GAP), job, note);
    let row = |(index, run): (usize, &RunView)| {
        vec![
            Text::plain(ids.short(&run.id)),
            Text::strong(output::first_line(&run.job, job)),
            run.state(),
            Text::plain(&times[index]),
            Text::number(&took[index]),
            Text::plain(output::first_line(&notes[index], note)),
        ]
    };
    let rows = runs.iter().enumerate().map(row).collect();
    Ok(out.table(&["ID", "JOB", "STATE", &scheduled, "TOOK", "NOTE"], rows)?)
}

/// What the table says about a run besides its state: an unusual cause, repeated attempts, the author of the cancellation,
/// the reason of the skip or failure.
fn note(out: Output, run: &RunView) -> String {
    let cause = (run.cause != "tick").then(|| run.cause.clone());
    let attempt = (run.attempt > 1).then(|| format!("attempt {}", run.attempt));
    let by = run.cancelled_by.as_ref().map(|by| format!("by {by}"));
    let reason = match (&run.skip_reason, run.count) {
        (Some(reason), Some(count)) => format!("{reason}, {count} ticks"),
        _ => run.note(out),
    };
    let parts = [cause, attempt, by, Some(reason)].into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

/// Divides the space between names and notes. Names come first, because they identify the run.
fn share(left: usize, job: usize, note: usize) -> (usize, usize) {
    let job = job.min(left.saturating_sub(note.min(NOTE_MIN)).max(JOB_MIN));
    (job, note.min(left.saturating_sub(job)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_notes_share_the_space_and_never_need_more() {
        for left in [20, 25, 30, 60] {
            for (job, note) in [(3, 0), (3, 4), (60, 4), (60, 100), (10, 100), (8, 8)] {
                let (for_job, for_note) = share(left, job, note);
                assert!(for_job + for_note <= left, "{left} {job} {note}: {for_job} {for_note}");
                assert!(for_job <= job && for_note <= note, "{left} {job} {note}: {for_job} {for_note}");
            }
        }
        assert_eq!(share(30, 10, 100), (10, 20));
        assert_eq!(share(30, 60, 100), (16, 14));
    }
}
