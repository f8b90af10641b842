//! `everytick run`: lists, shows, follows, cancels and repeats runs on a server.

use std::time::Duration;

use clap::{Args, Subcommand};
use everytick_domain::{
    explain::reason_words,
    instant::{InstantText, Lean},
    run::{CauseKind, SkipReason, State},
    time::Span,
};
use futures::{StreamExt, pin_mut};
use serde::Deserialize;
use serde_json::Value;

use super::{
    explanation, ids,
    job::{self, PageFlags, job_ref},
    redrive::{self, Redrive},
    run_period::Period,
    run_table,
    started::Wait,
};
use crate::{
    client::{Client, Page},
    output::{self, Output, Text, Tone},
    sse::Events,
};

/// While the log of a run in progress is empty, it is requested again: at this interval, at most this many times.
const LOG_POLL_EVERY: Duration = Duration::from_millis(250);
const LOG_ASKED_MAX: usize = 20;

const LIST_HELP: &str = "\
Examples:
  everytick run list
  everytick run list --job nightly --status failed
  everytick run list --label team=billing --cause backfill
  everytick run list --flow 01a1e327-d180-8de1
  everytick run list --from yesterday --to '2h ago'
  everytick run list --from 2026-11-16 -o json | jq -r '.items[].id'

--from and --to select by the time at which a run is listed: its tick or request. Runs of a backfill are listed one hour before the
creation of the backfill, whatever their ticks are; --cause backfill finds them.

The list includes skipped ticks with the reason. A range of skipped ticks is one line. The table shows short ids, which commands
accept, and fits 80 columns; `run get` and -o json show everything.";

const GET_HELP: &str = "\
Examples:
  everytick run get 01a1e327-d180-8de1-92e3-d388a74d8fe4";

const CANCEL_HELP: &str = "\
Examples:
  everytick run cancel 01a1e327-d180-8de1-92e3-d388a74d8fe4

Drops the HTTP request, or sends SIGTERM and then SIGKILL to the command. A run that has ended cannot be cancelled (exit 4).";

const RERUN_HELP: &str = "\
Examples:
  everytick run rerun 01a1e327-d180-8de1-92e3-d388a74d8fe4
  everytick run rerun 01a1e327-d180-8de1-92e3-d388a74d8fe4 --wait

Creates a new run of the same job with its own id. The old run does not change.
Prints the id of the new run on stdout. Exits with 4 if the new run was skipped, such as when another run of the job is open.
With --wait: exits with 0 only if the new run succeeded. Ctrl-C stops waiting, not the run.";

const LOG_HELP: &str = "\
Examples:
  everytick run log 01a1e327-d180-8de1-92e3-d388a74d8fe4

Follows the output while the run is in progress. After the end, shows the stored tail.";

const ATTEMPTS_HELP: &str = "\
Examples:
  everytick run attempts 01a1e327-d180-8de1-92e3-d388a74d8fe4";

const EXPLAIN_HELP: &str = "\
Examples:
  everytick run explain 01a1e327-d180-8de1-92e3-d388a74d8fe4
  everytick run explain 01a1e327-d180-8de1-92e3-d388a74d8fe4 -o json | jq -r .reason

For a waiting run, names what it waits for: its next attempt, another run of the job, a worker, a limit of its queue, or a
node. For a run that has ended, names the error and the attempts. For a skip, names the run that blocked it or the parent that
failed.";

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// List runs and skipped ticks, newest first
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Show one run
    #[command(after_help = GET_HELP)]
    Get(One),
    /// Explain why a run waits, how it ended, or why it was skipped
    #[command(after_help = EXPLAIN_HELP)]
    Explain(One),
    /// Cancel a run that waits or is in progress
    #[command(after_help = CANCEL_HELP)]
    Cancel(One),
    /// Repeat a run that has ended
    #[command(after_help = RERUN_HELP)]
    Rerun(Rerun),
    /// Repeat the failed runs of a job
    #[command(after_help = redrive::AFTER_HELP)]
    Redrive(Redrive),
    /// Print the output of a run, and follow it while the run is in progress
    #[command(after_help = LOG_HELP)]
    Log(One),
    /// List the attempts of a run
    #[command(after_help = ATTEMPTS_HELP)]
    Attempts(One),
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The run's id, or a beginning of it that no other run has
    #[arg(value_name = "RUN", value_parser = ids::id)]
    run: String,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List only runs of this job
    #[arg(long, value_name = "JOB", value_parser = job_ref)]
    job: Option<String>,
    #[command(flatten)]
    filter: RunFilter,
    #[command(flatten)]
    page: PageFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RunFilter {
    /// List only runs of this time or later: of the tick or request; for a backfill, one hour before its creation
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: Option<InstantText>,
    /// List only runs before this time; see --from for the time of a run
    #[arg(long, visible_alias = "until", value_name = "TIME", allow_hyphen_values = true)]
    to: Option<InstantText>,
    /// List only runs in this state: waiting, running (`claimed` in JSON), succeeded, failed, cancelled or skipped; repeatable
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = state)]
    status: Vec<String>,
    /// List only runs with this cause: tick, request, backfill or parent; repeatable
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = cause)]
    cause: Vec<String>,
    /// List only runs of this flow
    #[arg(long, value_name = "FLOW", value_parser = ids::id)]
    flow: Option<String>,
    /// List only runs of jobs with this label; if repeated, with all of them
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Rerun {
    #[command(flatten)]
    run: One,
    #[command(flatten)]
    wait: Wait,
    /// Create only one run, even if the request is repeated with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

fn state(text: &str) -> Result<String, String> {
    let words: Vec<&str> = State::ALL.iter().map(|state| shown_state(state.word())).collect();
    match State::from_word(text) {
        Some(state) => Ok(state.word().to_owned()),
        None if text == RUNNING => Ok(State::Claimed.word().to_owned()),
        None => Err(format!("{text:?} is not a state; write one of {}", words.join(", "))),
    }
}

fn cause(text: &str) -> Result<String, String> {
    let words: Vec<&str> = CauseKind::ALL.iter().map(|cause| cause.word()).collect();
    match CauseKind::from_word(text) {
        Some(cause) => Ok(cause.word().to_owned()),
        None => Err(format!("{text:?} is not a cause; write one of {}", words.join(", "))),
    }
}

impl RunFilter {
    /// Lists the runs of one job in its zone, or all runs in the local zone.
    pub(crate) async fn list(
        &self,
        client: &Client,
        out: Output,
        job: Option<&str>,
        page: PageFlags,
    ) -> anyhow::Result<()> {
        let (mut request, zone) = match job {
            Some(job) => (client.get(&["jobs", job, "runs"]), job::zone(client, job).await?),
            None => (client.get(&["runs"]), None),
        };
        for (name, values) in [("status", &self.status), ("cause", &self.cause), ("label", &self.label)] {
            for value in values {
                request = request.query(name, value);
            }
        }
        request = request.query_some("flow", self.flow.as_deref());
        let read = |name: &str, text: &Option<InstantText>| {
            text.as_ref().map(|text| out.times().read(name, text, Lean::Past, zone.as_deref())).transpose()
        };
        let period = Period { from: read("from", &self.from)?, to: read("to", &self.to)? };
        request = request.query_some("from", period.from).query_some("to", period.to);
        let list = request.list(page.limit, page.cursor).await?;
        let out = out.in_zone(zone.as_deref());
        if out.is_json() {
            return Ok(out.json(&list)?);
        }
        print_list(out, &list)?;
        period.note(client, out, job, &list).await
    }
}

/// The fields of the API's answer that tables show. A missing field is shown empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunView {
    pub(crate) id: String,
    pub(super) job: String,
    pub(super) cause: String,
    pub(crate) scheduled_at: String,
    pub(super) due_at: String,
    pub(super) state: String,
    pub(super) attempt: u32,
    lost: u32,
    node: Option<String>,
    worker: Option<String>,
    started_at: Option<String>,
    finished_at: Option<String>,
    duration_ms: Option<u64>,
    pub(crate) error: Option<String>,
    output: Option<String>,
    pub(super) skip_reason: Option<String>,
    flow: Option<String>,
    pub(super) cancelled_by: Option<String>,
    from: Option<String>,
    to: Option<String>,
    pub(super) count: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AttemptView {
    attempt: u32,
    node: Option<String>,
    worker: Option<String>,
    started_at: Option<String>,
    duration_ms: Option<u64>,
    outcome: Option<String>,
    error: Option<String>,
}

impl RunCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::List(List { job, filter, page }) => filter.list(client, out, job.as_deref(), page).await,
            Self::Get(One { run }) => {
                let answer = client.get(&["runs", &run]).send().await?;
                if out.is_json() {
                    return Ok(out.json(&answer)?);
                }
                let run: RunView = answer.read()?;
                let zone = job::zone(client, &run.job).await?;
                // A tick that ran has no origin to explain.
                let has_more = run.skip_reason.is_some() || run.cause != CauseKind::Tick.word();
                let explained = if has_more { explanation::of_run(out, client, &run.id).await } else { None };
                print_run(out.in_zone(zone.as_deref()), run, explained)
            }
            Self::Explain(One { run }) => explanation::ask(out, client.get(&["runs", &run, "explain"])).await,
            Self::Cancel(One { run }) => {
                let answer = client.post(&["runs", &run, "cancel"]).send().await?;
                let id = answer.read::<RunView>()?.id;
                if out.is_json() { Ok(out.json(&answer)?) } else { Ok(out.line(&format!("{id} cancelled"))?) }
            }
            Self::Rerun(Rerun { run: One { run }, wait, idempotency_key }) => {
                let request = client.post(&["runs", &run, "rerun"]);
                let started = request.header_some("idempotency-key", idempotency_key).send().await?;
                wait.report(client, out, started).await
            }
            Self::Redrive(redrive) => redrive.run(client, out).await,
            Self::Log(One { run }) => follow(client, out, &run).await,
            Self::Attempts(One { run }) => {
                let answer = client.get(&["runs", &run, "attempts"]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_attempts(out, answer.read()?) }
            }
        }
    }
}

/// Prints the output of a run: live while the run is in progress, else the stored tail.
async fn follow(client: &Client, out: Output, id: &str) -> anyhow::Result<()> {
    for _ in 0..LOG_ASKED_MAX {
        if print_log(client, out, id).await? {
            return Ok(());
        }
        // The log was empty: the run has no output, or it was claimed just now and its log is not open yet.
        let run: RunView = client.get(&["runs", id]).send().await?.read()?;
        match run.state.as_str() {
            "claimed" => tokio::time::sleep(LOG_POLL_EVERY).await,
            "waiting" => {
                output::note_line(&format!("the run is waiting; it is due at {}", out.time(run.due_at)));
                return Ok(());
            }
            // The answer of a webhook is stored when the run ends. It is not in the live log.
            _ => return print_log(client, out, id).await.map(|_| ()),
        }
    }
    Ok(())
}

/// Prints the log. Returns whether it printed anything.
async fn print_log(client: &Client, out: Output, id: &str) -> anyhow::Result<bool> {
    let request = client.get(&["runs", id, "log"]);
    let (media_type, chunks) = request.stream("text/event-stream, text/plain").await?;
    pin_mut!(chunks);
    let (mut events, mut printed, mut begun) = (Events::default(), false, Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if media_type != "text/event-stream" {
            printed |= !chunk.is_empty();
            out.part(&chunk, &mut begun)?;
            continue;
        }
        for event in events.read(&chunk) {
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            match event.name.as_str() {
                "chunk" => {
                    let text = data["text"].as_str().unwrap_or_default();
                    printed |= !text.is_empty();
                    out.part(text.as_bytes(), &mut begun)?;
                }
                "missed" => {
                    output::note_line("some output is missing here: it arrived faster than this client could read it")
                }
                "end" => return Ok(printed),
                _ => {}
            }
        }
    }
    Ok(printed)
}

fn print_list(out: Output, answer: &Page) -> anyhow::Result<()> {
    let runs: Vec<RunView> = answer.read()?;
    if runs.is_empty() {
        note_none(answer);
        return Ok(());
    }
    run_table::print(out, &runs)?;
    note_more(answer);
    Ok(())
}

/// Notes that a list is empty, and how far the server searched if it did not reach the end.
fn note_none(page: &Page) {
    match (&page.next_cursor, &page.searched_to) {
        (Some(cursor), Some(to)) => {
            output::note_line(&format!("no runs back to {to}; search further back with --cursor {cursor}"));
        }
        _ => output::note_line("no runs"),
    }
}

/// Notes that a list has more items, and how to see them.
pub(crate) fn note_more(page: &Page) {
    if let Some(cursor) = &page.next_cursor {
        output::note_line(&format!("there are more; raise --limit, or continue with --cursor {cursor}"));
    }
}

fn print_run(out: Output, run: RunView, explained: Option<explanation::Explanation>) -> anyhow::Result<()> {
    let because = run.because(explained.as_ref());
    let origin =
        explained.as_ref().filter(|_| run.cause == CauseKind::Request.word()).and_then(|told| told.details.first());
    let some = |text: &Option<String>| Text::plain(text.as_deref().unwrap_or_default());
    let attempt = match (run.attempt, run.lost) {
        (0, _) => String::new(),
        (attempt, 0) => attempt.to_string(),
        (attempt, lost) => format!("{attempt}, {lost} of them lost"),
    };
    Ok(out.facts(vec![
        ("Id", Text::plain(&run.id)),
        ("Job", Text::strong(&run.job)),
        ("State", run.state()),
        ("Cancelled by", some(&run.cancelled_by)),
        ("Cause", Text::plain(&run.cause)),
        ("Origin", Text::plain(origin.map(String::as_str).unwrap_or_default())),
        ("Scheduled", Text::plain(out.time(&run.scheduled_at))),
        ("Flow", some(&run.flow)),
        ("Due", out.time_of((run.due_at != run.scheduled_at).then_some(&run.due_at))),
        ("Skipped", Text::plain(if run.skip_reason.is_some() { run.note(out) } else { String::new() })),
        ("Because", Text::plain(because)),
        ("Attempt", Text::plain(attempt)),
        ("Node", some(&run.node)),
        ("Worker", if run.is_accepted() { Text::plain("") } else { some(&run.worker) }),
        ("Receiver", Text::plain(run.receiver())),
        ("Started", out.time_of(run.started_at.as_ref())),
        ("Finished", out.time_of(run.finished_at.as_ref())),
        ("Took", Text::plain(run.duration())),
        ("Error", Text::new(run.error.as_deref().unwrap_or_default(), Tone::Bad)),
        ("Output", some(&run.output).raw()),
    ])?)
}

/// The table shows this as the worker of an attempt to which the receiver answered 202.
const ACCEPTED: &str = "receiver (202)";

fn print_attempts(out: Output, answer: Page) -> anyhow::Result<()> {
    let attempts: Vec<AttemptView> = answer.read()?;
    if attempts.is_empty() {
        output::note_line("no attempts yet");
        return Ok(());
    }
    // An attempt has a node or a worker. Show each of these columns only if an attempt has a value for it.
    let by_node = attempts.iter().any(|attempt| attempt.node.is_some());
    let by_worker = attempts.iter().any(|attempt| attempt.worker.is_some());
    let shown = |column: &&str| match *column {
        "NODE" => by_node,
        "WORKER" => by_worker,
        _ => true,
    };
    let columns = ["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "NODE", "WORKER", "ERROR"];
    let rows = attempts.into_iter().map(|attempt| {
        let is_accepted = attempt.node.is_some() && attempt.worker.is_some();
        let cells = [
            Text::number(attempt.attempt.to_string()),
            state_text(attempt.outcome.as_deref().unwrap_or("in progress")),
            out.time_of(attempt.started_at.as_ref()),
            Text::number(took(attempt.duration_ms)),
            Text::plain(attempt.node.unwrap_or_default()),
            Text::plain(if is_accepted { ACCEPTED.to_owned() } else { attempt.worker.unwrap_or_default() }),
            Text::plain(attempt.error.unwrap_or_default()),
        ];
        columns.iter().zip(cells).filter(|(column, _)| shown(column)).map(|(_, cell)| cell).collect()
    });
    let rows = rows.collect();
    Ok(out.table(&columns.into_iter().filter(shown).collect::<Vec<_>>(), rows)?)
}

impl RunView {
    pub(super) fn state(&self) -> Text {
        state_text(&self.state)
    }

    pub(super) fn duration(&self) -> String {
        took(self.duration_ms)
    }

    /// The reason of the skip or failure.
    pub(super) fn note(&self, out: Output) -> String {
        match (&self.skip_reason, &self.from, &self.to, self.count) {
            (Some(reason), Some(from), Some(to), Some(count)) => {
                format!("{reason}: {count} ticks from {} to {}", out.time(from), out.time(to))
            }
            (Some(reason), ..) => reason.clone(),
            _ => self.error.clone().unwrap_or_default(),
        }
    }

    /// Explains the skip; empty for a run that was not skipped. Without an explanation of the server, it is the general text of
    /// the reason, which is empty for a reason that only a later release knows.
    pub(super) fn because(&self, explained: Option<&explanation::Explanation>) -> String {
        let message = explained.and_then(|told| told.message.split_once("skipped: "));
        if let (true, Some((_, why))) = (self.skip_reason.is_some(), message) {
            return why.to_owned();
        }
        let reason = self.skip_reason.as_deref().and_then(SkipReason::from_word);
        reason.map(|reason| reason_words(reason, None)).unwrap_or_default()
    }

    /// Whether a receiver has answered 202 to this attempt. Such an attempt has both a node and a worker, and
    /// `worker` is the kind of target. A run that a worker claimed has no node.
    fn is_accepted(&self) -> bool {
        self.node.is_some() && self.worker.is_some()
    }

    fn receiver(&self) -> &'static str {
        match (self.is_accepted(), State::from_word(&self.state)) {
            (false, _) => "",
            (true, Some(State::Claimed)) => "answered 202; its report is awaited",
            (true, Some(State::Waiting)) => "answered 202 to the last attempt",
            (true, _) => "answered 202 before the run ended",
        }
    }

    /// State and tick, for the list of jobs.
    pub(crate) fn summary(&self, out: Output) -> Text {
        self.state().and(&format!(" {}", out.time(&self.scheduled_at)))
    }
}

pub(crate) fn took(millis: Option<u64>) -> String {
    millis.map(|millis| Span::millis(millis).to_string()).unwrap_or_default()
}

/// Tables show the state `claimed` as this word, which users know. JSON has the words of the API.
pub(crate) const RUNNING: &str = "running";

/// The state as tables show it.
pub(crate) fn shown_state(word: &str) -> &str {
    if State::from_word(word) == Some(State::Claimed) { RUNNING } else { word }
}

pub(crate) fn state_text(word: &str) -> Text {
    let tone = match State::from_word(word) {
        Some(State::Succeeded) => Tone::Good,
        Some(State::Failed) => Tone::Bad,
        Some(State::Claimed) => Tone::Busy,
        Some(State::Skipped) => Tone::Warn,
        Some(State::Cancelled) => Tone::Quiet,
        Some(State::Waiting) => Tone::Plain,
        None if word == "lost" => Tone::Bad,
        Some(State::Unknown(_)) | None => Tone::Busy,
    };
    Text::new(shown_state(word), tone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn the_note_of_a_skipped_range_has_the_count_and_the_bounds() {
        let run: RunView = serde_json::from_str(
            r#"{"state": "skipped", "skip_reason": "misfire", "from": "a", "to": "b", "count": 9, "unknown": 1}"#,
        )
        .unwrap();
        assert_eq!(run.note(Output::new(Format::Table)), "misfire: 9 ticks from a to b");
    }
}
