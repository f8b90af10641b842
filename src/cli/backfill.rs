//! Runs for past ticks: `everytick job backfill` creates a backfill, `everytick backfill` lists, shows and cancels them.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::{Args, Subcommand};
use everytick_domain::{
    backfill::Order,
    instant::{InstantText, Lean},
    queue::Rate,
    time::DbTime,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    fit::{self, Column, Layout, Precision},
    ids::{self, ShortIds},
    job::{self, PageFlags, job_ref},
};
use crate::{
    client::{Answer, Client},
    failure::{Exit, Failure},
    output::{self, Output, Text, Tone},
};

/// Poll interval of `--wait`. Nodes advance a backfill once a second.
const POLL_EVERY: Duration = Duration::from_millis(500);

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick job backfill nightly --from 2026-11-01 --to 2026-11-15 --dry-run
  everytick job backfill nightly --from 2026-11-01 --to 2026-11-15 --wait
  everytick job backfill poll --from '6h ago' --to now --rate 10/1m

Creates a run for each tick of the job's present schedule from --from to before --to, at most 10,000.
Dates that the job's calendars exclude get no run. Runs that are on time start before backfill runs.
The records of the original ticks do not change.
With --wait: exits 0 when all runs succeeded, else 1. Ctrl-C stops waiting, not the backfill.";

const LIST_HELP: &str = "\
Examples:
  everytick backfill list --job nightly";

const GET_HELP: &str = "\
Examples:
  everytick backfill get 019a8d0e-3c00-7c1e-9d0c-4b5e9c553f6f";

const CANCEL_HELP: &str = "\
Examples:
  everytick backfill cancel 019a8d0e-3c00-7c1e-9d0c-4b5e9c553f6f
  everytick backfill cancel 019a8d0e-3c00-7c1e-9d0c-4b5e9c553f6f --runs

The backfill creates no more runs. Runs that it has created continue, unless --runs is set.";

#[derive(Debug, Args)]
pub(crate) struct Backfill {
    /// The job's name or id
    #[arg(value_name = "JOB", value_parser = job_ref)]
    job: String,
    /// Start at this time; no earlier than the stored history
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: InstantText,
    /// End before this time; not in the future
    #[arg(long, visible_alias = "until", value_name = "TIME", allow_hyphen_values = true)]
    to: InstantText,
    /// Create at most this many runs per period, such as 10/1m; at most 1/1s if the job's runs may not overlap [default: as
    /// many as may wait]
    #[arg(long, value_name = "N/DURATION")]
    rate: Option<Rate>,
    /// Create the run of the newest tick first
    #[arg(long)]
    newest_first: bool,
    /// Deliver this instead of the job's payload: JSON, or @file, or @- for stdin
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Show the ticks and create nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait until all runs have ended, and show the progress
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Create only one backfill, even if the request is repeated with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackfillCommand {
    /// List the backfills of a job, newest first
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Show a backfill and its progress
    #[command(after_help = GET_HELP)]
    Get(One),
    /// Cancel a backfill, so that it creates no more runs
    #[command(after_help = CANCEL_HELP)]
    Cancel(Cancel),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List the backfills of this job
    #[arg(long, value_name = "JOB", value_parser = job_ref)]
    job: String,
    #[command(flatten)]
    page: PageFlags,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The backfill's id, or a beginning of it that no other backfill has
    #[arg(value_name = "BACKFILL", value_parser = ids::id)]
    backfill: String,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    one: One,
    /// Also cancel its runs that wait or are in progress
    #[arg(long)]
    runs: bool,
}

#[derive(Debug, Serialize)]
struct BackfillRequest {
    from: DbTime,
    to: DbTime,
    order: &'static str,
    rate: Option<String>,
    /// The JSON text as written, byte for byte.
    payload: Option<Box<RawValue>>,
    dry_run: bool,
}

/// The fields of the API's answer that tables show.
#[derive(Debug, Deserialize)]
struct View {
    id: Option<String>,
    job: String,
    from: String,
    to: String,
    order: String,
    rate: Option<String>,
    state: Option<String>,
    total: u64,
    made: u64,
    ended: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    note: Option<String>,
    created_at: Option<String>,
    finished_at: Option<String>,
    first: Option<Vec<String>>,
    last: Option<Vec<String>>,
}

impl Backfill {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let payload = self.payload.as_deref().map(job::payload).transpose()?;
        let order = if self.newest_first { Order::Newest } else { Order::Oldest };
        let rate = self.rate.map(|rate| rate.to_string());
        let zone = job::zone(client, &self.job).await?;
        let read = |flag, text: &InstantText| out.times().read(flag, text, Lean::Past, zone.as_deref());
        let (from, to) = (read("from", &self.from)?, read("to", &self.to)?);
        let body = BackfillRequest { from, to, order: order.word(), rate, payload, dry_run: self.dry_run };
        let request = client.post(&["jobs", &self.job, "backfill"]);
        let request = request.header_some("idempotency-key", self.idempotency_key);
        let answer = request.json(&body)?.send().await?;
        let out = out.in_zone(zone.as_deref());
        let made: View = answer.read()?;
        match &made.id {
            Some(id) if self.wait => {
                output::note_line(&format!("backfill {id} covers {} ticks", made.total));
                wait_for(client, id, out).await
            }
            Some(_) => show(client, &answer, out).await,
            None => preview(&answer, &made, out),
        }
    }
}

impl BackfillCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(client, out).await,
            Self::Get(One { backfill }) => {
                let answer = client.get(&["backfills", &backfill]).send().await?;
                show(client, &answer, out).await
            }
            Self::Cancel(Cancel { one: One { backfill }, runs }) => {
                let request = client.post(&["backfills", &backfill, "cancel"]);
                let answer = request.query_some("cancel_runs", runs.then_some(true)).send().await?;
                show(client, &answer, out).await
            }
        }
    }
}

impl List {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let request = client.get(&["jobs", &self.job, "backfills"]);
        let page = request.list(self.page.limit, self.page.cursor).await?;
        if out.is_json() {
            return Ok(out.json(&page)?);
        }
        let zone = job::zone(client, &self.job).await?;
        let out = out.in_zone(zone.as_deref());
        let backfills: Vec<View> = page.read()?;
        if backfills.is_empty() {
            output::note_line("no backfills");
        } else {
            let layout = |precision, all| layout(out, &backfills, precision, all);
            let (seconds, minutes) = (Precision::Seconds, Precision::Minutes);
            fit::first_that_fits(
                out,
                [(seconds, true), (minutes, true), (seconds, false), (minutes, false)].map(|(p, all)| layout(p, all)),
            )?;
        }
        if let Some(cursor) = &page.next_cursor {
            output::note_line(&format!("there are more; continue with --cursor {cursor}"));
        }
        Ok(())
    }
}

/// The table of backfills; without `all`, only the most useful columns.
fn layout(out: Output, backfills: &[View], precision: Precision, all: bool) -> Layout {
    let ids = ShortIds::of(backfills.iter().filter_map(|view| view.id.as_deref()));
    let instants = |view: &View| [view.from.clone(), view.to.clone(), view.created_at.clone().unwrap_or_default()];
    let instants: Vec<String> = backfills.iter().flat_map(instants).collect();
    let (zone, times) = fit::times_to(precision, out, instants.iter().map(String::as_str));
    let time = |index: usize| times.iter().skip(index).step_by(3).map(Text::plain).collect::<Vec<_>>();
    let number = |count: fn(&View) -> u64| {
        backfills.iter().map(|view| Text::number(count(view).to_string())).collect::<Vec<_>>()
    };
    let id = |view: &View| Text::plain(view.id.as_deref().map(|id| ids.short(id)).unwrap_or_default());
    let mut columns = vec![
        Column::whole("BACKFILL", backfills.iter().map(id)),
        Column::whole("STATE", backfills.iter().map(state_text)),
        Column::whole(format!("FROM{zone}"), time(0)),
        Column::whole("TO", time(1)),
        Column::whole("TICKS", number(|view| view.total)),
    ];
    if all {
        columns.push(Column::whole("MADE", number(|view| view.made)));
    }
    columns.push(Column::whole("ENDED", number(|view| view.ended)));
    columns.push(Column::whole("FAILED", number(|view| view.failed)));
    if all {
        columns.push(Column::whole("CREATED", time(2)));
    }
    Layout::of(columns)
}

fn state_text(view: &View) -> Text {
    let state = view.state.as_deref().unwrap_or_default();
    let tone = match state {
        "running" => Tone::Busy,
        "done" if view.succeeded == view.total => Tone::Good,
        "done" => Tone::Warn,
        _ => Tone::Quiet,
    };
    Text::new(state, tone)
}

async fn show(client: &Client, answer: &Answer, out: Output) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let view: View = answer.read()?;
    let zone = job::zone(client, &view.job).await?;
    let out = out.in_zone(zone.as_deref());
    let state = state_text(&view);
    let some = |count: u64| if count == 0 { String::new() } else { count.to_string() };
    Ok(out.facts(vec![
        ("Backfill", Text::plain(view.id.unwrap_or_default())),
        ("Job", Text::plain(view.job)),
        ("From", Text::plain(out.time(view.from))),
        ("To", Text::plain(out.time(view.to))),
        ("Order", Text::plain(format!("{} first", view.order))),
        ("Rate", Text::plain(view.rate.unwrap_or_default())),
        ("State", state),
        ("Ticks", Text::plain(view.total.to_string())),
        ("Made", Text::plain(view.made.to_string())),
        ("Ended", Text::plain(view.ended.to_string())),
        ("Succeeded", Text::plain(some(view.succeeded))),
        ("Failed", Text::plain(some(view.failed))),
        ("Cancelled", Text::plain(some(view.cancelled))),
        ("Created at", out.time_of(view.created_at.as_ref())),
        ("Finished at", out.time_of(view.finished_at.as_ref())),
        ("Note", Text::plain(view.note.unwrap_or_default())),
    ])?)
}

fn preview(answer: &Answer, view: &View, out: Output) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let (first, last) = (view.first.clone().unwrap_or_default(), view.last.clone().unwrap_or_default());
    let named = (first.len() + last.len()) as u64;
    for tick in &first {
        out.line(&out.time(tick))?;
    }
    if named < view.total {
        out.line(&format!("... {} more ...", view.total - named))?;
    }
    for tick in &last {
        out.line(&out.time(tick))?;
    }
    let rate = view.rate.as_ref().map(|rate| format!(", at {rate}")).unwrap_or_default();
    output::note_line(&format!("dry run: would create {} runs of {}{rate}; nothing was created", view.total, view.job));
    Ok(())
}

/// Polls until the backfill ends. Shows a progress bar on a terminal, otherwise a line per change.
async fn wait_for(client: &Client, id: &str, out: Output) -> anyhow::Result<()> {
    let mut progress = Progress::default();
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let answer = loop {
        let answer = client.get(&["backfills", id]).send().await?;
        let view: View = answer.read()?;
        progress.show(&view);
        if view.state.as_deref() != Some("running") {
            break answer;
        }
        tokio::select! {
            _ = &mut interrupted => {
                progress.end();
                let message = format!(
                    "stopped waiting; the backfill continues. Show it with `everytick backfill get {id}`, cancel it with \
                     `everytick backfill cancel {id}`"
                );
                return Err(Failure::new(Exit::Failed, message).into());
            }
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
    };
    progress.end();
    show(client, &answer, out).await?;
    let view: View = answer.read()?;
    match view.state.as_deref() {
        Some("done") if view.succeeded == view.total => Ok(()),
        Some("done") => {
            let message = format!(
                "{} of {} runs did not succeed; `everytick run list --job {} --cause backfill` lists them",
                view.total - view.succeeded,
                view.total,
                view.job
            );
            Err(Failure::new(Exit::Failed, message).into())
        }
        _ => {
            let why = view.note.map(|note| format!(": {note}")).unwrap_or_default();
            let message = format!("the backfill ended after it created {} of {} runs{why}", view.made, view.total);
            Err(Failure::new(Exit::Failed, message).into())
        }
    }
}

#[derive(Default)]
struct Progress {
    bar: Option<ProgressBar>,
    shown: Option<(u64, u64)>,
}

impl Progress {
    fn show(&mut self, view: &View) {
        if self.shown == Some((view.made, view.ended)) {
            return;
        }
        if self.shown.is_none() && io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} ended, {msg}");
            let bar = ProgressBar::new(view.total);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar = Some(bar);
        }
        self.shown = Some((view.made, view.ended));
        let failed = if view.failed > 0 { format!(", {} failed", view.failed) } else { String::new() };
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("{} created{failed}", view.made));
                bar.set_position(view.ended);
            }
            None => {
                let (total, made, ended) = (view.total, view.made, view.ended);
                output::note_line(&format!("{made} of {total} runs created, {ended} ended{failed}"));
            }
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
