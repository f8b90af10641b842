//! `everytick job`: creates, lists, shows, changes, pauses and triggers jobs on a server.

mod after_flags;
mod batch;
mod bulk;
mod document;
mod flags;
mod followed;
mod help;
mod target_flags;
mod view;

use std::path::PathBuf;

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use everytick_domain::{
    ids::JobId,
    instant::{InstantText, Lean},
    job::check_name,
    target::TargetKind,
};
use serde_json::json;

use self::{
    batch::create_batch,
    bulk::{Command, OpenRuns, Selection, Verb},
    document::Document,
    flags::{JobFlags, UpdateFlags},
    help::*,
    view::{JobView, cancelled_line, changed_line, print_changed, print_job, print_next, resumed_line},
};
use super::{
    backfill::{self, Backfill},
    explanation,
    fit::{self, Column, Layout, Precision},
    number::{whole, within},
    run::{self, RunFilter},
    started::Wait,
};
use crate::{
    client::Client,
    failure::{Failure, is_not_found},
    output::{self, Output, Text},
};
pub(crate) use bulk::{Command as BulkCommand, Confirmation, OpenRuns as BulkOpenRuns, Verb as BulkVerb, names_with};
pub(crate) use document::{payload, read_text};

/// The least space for a schedule and for a target in a list.
const TEXT_MIN: usize = 8;
/// With less space for schedules than this, a narrower list leaves out other columns. It fits `when triggered` and most
/// expressions without their zone.
const SCHEDULE_WANTED: usize = 14;

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Create a job from flags or a file
    #[command(after_help = CREATE_HELP)]
    Create(Box<Create>),
    /// List jobs by name
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Show one job
    #[command(after_help = GET_HELP)]
    Get(JobName),
    /// Change the given fields of a job
    #[command(after_help = UPDATE_HELP)]
    Update(Box<Update>),
    /// Delete jobs
    #[command(after_help = DELETE_HELP)]
    Delete(Delete),
    /// Pause jobs: they have no ticks until they are resumed
    #[command(after_help = PAUSE_HELP)]
    Pause(Pause),
    /// Resume paused jobs
    #[command(after_help = RESUME_HELP)]
    Resume(Selection),
    /// Trigger a run of a job now
    #[command(after_help = TRIGGER_HELP)]
    Trigger(Trigger),
    /// Create runs for past ticks of a job
    #[command(after_help = backfill::AFTER_HELP)]
    Backfill(Backfill),
    /// Cancel all runs of jobs that wait or are in progress
    #[command(after_help = CANCEL_HELP)]
    Cancel(Selection),
    /// Show the next ticks of a job
    #[command(after_help = NEXT_HELP)]
    Next(Next),
    /// Explain why a job ran, did not run, or will run at an instant
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// List the runs of a job, newest first
    #[command(after_help = RUNS_HELP)]
    Runs(Runs),
}

#[derive(Debug, Args)]
pub(crate) struct JobName {
    /// The job's name or id
    #[arg(value_name = "JOB", value_parser = job_ref)]
    job: String,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The job's name; may be in the file instead
    #[arg(value_name = "NAME", required_unless_present_any = ["file", "batch"])]
    name: Option<String>,
    /// Read the job as JSON from this file; - is stdin
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Create many jobs from this file, one JSON object per line; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "name"])]
    batch: Option<PathBuf>,
    /// Create only one job, even if the request is repeated with this key
    #[arg(long, value_name = "KEY", conflicts_with = "batch")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    flags: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List only enabled jobs, or with =false only disabled jobs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    enabled: Option<bool>,
    /// List only paused jobs, or with =false only jobs that are not paused
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    paused: Option<bool>,
    /// List only jobs with this kind of target
    #[arg(long, value_parser = PossibleValuesParser::new(TargetKind::ALL.iter().map(|kind| kind.word())))]
    target: Option<String>,
    /// List only jobs with this label; if repeated, with all of them
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// List only jobs with this text in the name or description
    #[arg(long, short, value_name = "TEXT")]
    q: Option<String>,
    #[command(flatten)]
    page: PageFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PageFlags {
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
    pub(crate) limit: usize,
    /// Continue from the next_cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Update {
    #[command(flatten)]
    job: JobName,
    /// Change the job only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION", value_parser = whole::<i64>(1..=i64::MAX))]
    if_version: Option<i64>,
    /// Read the change as a JSON merge patch from this file; - is stdin
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    update: UpdateFlags,
    #[command(flatten)]
    flags: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    selection: Selection,
    /// Also cancel the runs that wait or are in progress
    #[arg(long)]
    cancel: bool,
    /// Delete the job only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION", value_parser = whole::<i64>(1..=i64::MAX))]
    if_version: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    selection: Selection,
    /// Store this note with the pause, such as the reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Also cancel the runs that wait or are in progress
    #[arg(long)]
    cancel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Trigger {
    #[command(flatten)]
    job: JobName,
    /// Deliver this instead of the job's payload: JSON, or @file, or @- for stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Start the run even if the job's overlap policy would skip it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    wait: Wait,
    /// Create only one run, even if the request is repeated with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Next {
    #[command(flatten)]
    job: JobName,
    /// Show this many ticks
    #[arg(short = 'n', long, default_value_t = 10, value_parser = within::<u32>(1..=1_000))]
    count: u32,
    /// Show the ticks from this time on [default: now]
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: Option<InstantText>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    job: JobName,
    /// Explain this time, such as '2026-12-25 02:00', or the first tick of a day, such as 2026-12-25 [default: the last
    /// tick up to now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<InstantText>,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    #[command(flatten)]
    job: JobName,
    #[command(flatten)]
    filter: RunFilter,
    #[command(flatten)]
    page: PageFlags,
}

/// Accepts a job id or a valid job name, so that a typing error needs no request.
pub(crate) fn job_ref(text: &str) -> Result<String, String> {
    match text.parse::<JobId>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => check_name(text).map(|()| text.to_owned()),
    }
}

/// The name of the job's zone, if one of the texts needs it.
pub(crate) async fn zone_for<const N: usize>(
    client: &Client,
    job: &str,
    texts: [Option<&InstantText>; N],
) -> anyhow::Result<Option<String>> {
    if texts.into_iter().flatten().all(InstantText::is_exact) {
        return Ok(None);
    }
    zone(client, job).await
}

/// The name of the job's zone. `None` if the job has no zone, or does not exist. The zone of a deleted job is known while it can
/// be explained.
pub(crate) async fn zone(client: &Client, job: &str) -> anyhow::Result<Option<String>> {
    match client.get(&["jobs", job]).send().await {
        Ok(answer) => return Ok(answer.read::<JobView>()?.zone()),
        Err(error) if is_not_found(&error) => {}
        Err(error) => return Err(error),
    }
    match client.get(&["jobs", job, "explain"]).send().await {
        Ok(answer) => Ok(answer.read::<DeletedJobView>()?.schedule_timezone),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The field of an explanation that is read for a deleted job.
#[derive(Debug, serde::Deserialize)]
struct DeletedJobView {
    #[serde(default)]
    schedule_timezone: Option<String>,
}

fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or_else(|| format!("{text:?} is not a number of rows; write 1 or more"))
}

impl JobCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create(create) => create.run(client, out).await,
            Self::List(list) => list.run(client, out).await,
            Self::Get(JobName { job }) => {
                let answer = client.get(&["jobs", &job]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_job(out, answer.read()?) }
            }
            Self::Update(update) => update.run(client, out).await,
            Self::Delete(delete) => delete.run(client, out).await,
            Self::Pause(pause) => pause.run(client, out).await,
            Self::Resume(selection) => {
                let command = Command {
                    verb: Verb { now: "resume", done: "resumed" },
                    request: &|job| Ok(client.post(&["jobs", job, "resume"])),
                    line: &|answer| resumed_line(out, answer),
                    retry_conflicts: false,
                    open_runs: OpenRuns::Untouched,
                };
                selection.run(client, out, &[("paused", true)], &command).await
            }
            Self::Trigger(trigger) => trigger.run(client, out).await,
            Self::Backfill(backfill) => backfill.run(client, out).await,
            Self::Cancel(selection) => {
                let command = Command {
                    verb: Verb { now: "cancel the open runs of", done: "done" },
                    request: &|job| Ok(client.post(&["jobs", job, "cancel"])),
                    line: &cancelled_line,
                    retry_conflicts: false,
                    open_runs: OpenRuns::Only,
                };
                selection.run(client, out, &[], &command).await
            }
            Self::Next(Next { job: JobName { job }, count, from }) => {
                let zone = zone(client, &job).await?;
                let read = |text| out.times().read("from", &text, Lean::Future, zone.as_deref());
                let from = from.map(read).transpose()?;
                let request = client.get(&["jobs", &job, "next"]).query("count", count);
                let answer = request.query_some("from", from).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_next(out, answer.read()?, zone.as_deref()) }
            }
            Self::Explain(Explain { job: JobName { job }, at }) => {
                let zone = zone_for(client, &job, [at.as_ref()]).await?;
                let read = |text| out.times().read_period("at", &text, Lean::Either, zone.as_deref());
                let (at, until) = at.map(read).transpose()?.unzip();
                let request = client.get(&["jobs", &job, "explain"]).query_some("at", at);
                explanation::ask(out, request.query_some("until", until.flatten())).await
            }
            Self::Runs(Runs { job: JobName { job }, filter, page }) => filter.list(client, out, Some(&job), page).await,
        }
    }
}

impl Create {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        if let Some(path) = &self.batch {
            if !self.flags.for_create()?.is_empty() {
                return Err(Failure::usage("--batch reads each job from its line; remove the other flags").into());
            }
            return create_batch(client, out, path).await;
        }
        let mut document = match &self.file {
            Some(path) => Document::read(path)?,
            None => Document::default(),
        };
        let zone = document.zone();
        if let Some(flag) = self.flags.without_schedule().filter(|_| !document.has_schedule()) {
            let message = format!("{flag} needs a schedule; add --cron, --every or --at, or remove {flag}");
            return Err(Failure::usage(message).into());
        }
        document.overlay(self.flags.resolve(out.times(), zone.as_deref())?.for_create()?);
        if let Some(name) = self.name {
            document.name(name);
        }
        if !document.has_name() {
            return Err(
                Failure::usage("the job has no name; write NAME on the command line, or \"name\" in the file").into()
            );
        }
        if !document.has_target() {
            let message = "the job has no target; add --url URL for a webhook, --shell SCRIPT or -- CMD for a command, or \
                           --queue NAME for workers";
            return Err(Failure::usage(message).into());
        }
        let request = client.post(&["jobs"]).header_some("idempotency-key", self.idempotency_key);
        print_changed(out, request.json(&document)?.send().await?, "created")
    }
}

/// The columns and precision of a list of jobs. In a narrow terminal, the target is left out before the time of the last run,
/// because the name of a job often describes its target.
#[derive(Clone, Copy, Debug)]
struct Shown {
    precision: Precision,
    /// The least space for the schedule.
    schedule_min: usize,
    target: bool,
    /// The time of the last run.
    last_at: bool,
}

/// The table of jobs. `instants` are the next tick and the time of the last run of each.
fn list_layout(out: Output, jobs: &[JobView], instants: &[String], shown: Shown) -> Layout {
    let (zone, times) = fit::times_to(shown.precision, out, instants.iter().map(String::as_str));
    let next = |times: &[String]| Text::plain(if times[0].is_empty() { "-" } else { &times[0] });
    let last = |(job, times): (&JobView, &[String])| match &job.last_run {
        None => Text::plain("-"),
        Some(run) if shown.last_at => run.state().and(&format!(" {}", times[1])),
        Some(run) => run.state(),
    };
    let targets = jobs.iter().map(|job| Text::plain(output::first_line(&job.target_summary(), 48)));
    let schedules = jobs.iter().map(|job| Text::plain(job.schedule_summary(out)));
    let mut columns = vec![
        Column::whole("NAME", jobs.iter().map(|job| Text::strong(&job.name))),
        Column::whole("STATUS", jobs.iter().map(JobView::status)),
        Column::cut("SCHEDULE", shown.schedule_min, schedules),
    ];
    if shown.target {
        columns.push(Column::cut("TARGET", TEXT_MIN, targets));
    }
    columns.push(Column::whole(format!("NEXT TICK{zone}"), times.chunks(2).map(next)));
    columns.push(Column::whole("LAST RUN", jobs.iter().zip(times.chunks(2)).map(last)));
    Layout::of(columns)
}

impl List {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut request = client
            .get(&["jobs"])
            .query_some("enabled", self.enabled)
            .query_some("paused", self.paused)
            .query_some("target", self.target)
            .query_some("q", self.q);
        for label in self.label {
            request = request.query("label", label);
        }
        let answer = request.list(self.page.limit, self.page.cursor).await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let jobs: Vec<JobView> = answer.read()?;
        if jobs.is_empty() {
            output::note_line("no jobs");
            return Ok(());
        }
        let last = |job: &JobView| job.last_run.as_ref().map(|run| run.scheduled_at.clone()).unwrap_or_default();
        let instants = jobs.iter().flat_map(|job| [job.next_tick.clone().unwrap_or_default(), last(job)]);
        let instants: Vec<String> = instants.collect();
        let layout = |shown| list_layout(out, &jobs, &instants, shown);
        let all = Shown { precision: Precision::Seconds, schedule_min: SCHEDULE_WANTED, target: true, last_at: true };
        let minutes = Shown { precision: Precision::Minutes, ..all };
        let without_target = Shown { target: false, ..minutes };
        let narrow = Shown { schedule_min: TEXT_MIN, ..without_target };
        let least = Shown { last_at: false, ..narrow };
        fit::first_that_fits(out, [all, minutes, without_target, narrow, least].map(layout))?;
        run::note_more(&answer);
        Ok(())
    }
}

impl Update {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut document = match &self.file {
            Some(path) => Document::read(path)?,
            None => Document::default(),
        };
        let zone = zone_for(client, &self.job.job, self.flags.instants()).await?;
        document.overlay(self.flags.resolve(out.times(), zone.as_deref())?.for_update(self.update)?);
        if document.is_empty() {
            return Err(Failure::usage("nothing to change; set a flag such as --timeout 2m").into());
        }
        let body = serde_json::to_vec(&document)?;
        let request = client.patch(&["jobs", &self.job.job]).header_some("if-match", self.if_version.map(tag));
        print_changed(out, request.body("application/merge-patch+json", body).send().await?, "updated")
    }
}

impl Delete {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        if self.if_version.is_some() {
            self.selection.only_one("--if-version")?;
        }
        let now = if self.cancel { "cancel the open runs of and delete" } else { "delete" };
        let command = Command {
            verb: Verb { now, done: "deleted" },
            request: &|job| {
                let request = client.delete(&["jobs", job]).header_some("if-match", self.if_version.map(tag));
                Ok(request.query_some("cancel", self.cancel.then_some(true)))
            },
            line: &|answer| changed_line(out, answer, "deleted"),
            retry_conflicts: true,
            open_runs: if self.cancel { OpenRuns::Cancelled } else { OpenRuns::Untouched },
        };
        self.selection.run(client, out, &[], &command).await
    }
}

impl Pause {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let body = json!({ "note": self.note, "cancel": self.cancel });
        // With --cancel, include jobs that are paused already: they may have open runs.
        let (now, filter): (_, &[_]) = match self.cancel {
            true => ("pause and cancel the open runs of", &[]),
            false => ("pause", &[("paused", false)]),
        };
        let command = Command {
            verb: Verb { now, done: "paused" },
            request: &|job| client.post(&["jobs", job, "pause"]).json(&body),
            line: &|answer| changed_line(out, answer, "paused"),
            retry_conflicts: false,
            open_runs: if self.cancel { OpenRuns::Cancelled } else { OpenRuns::Untouched },
        };
        self.selection.run(client, out, filter, &command).await
    }
}

impl Trigger {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut document = Document::default();
        document.payload(self.payload.as_deref().map(document::payload).transpose()?);
        if self.force {
            document.force();
        }
        let request =
            client.post(&["jobs", &self.job.job, "trigger"]).header_some("idempotency-key", self.idempotency_key);
        self.wait.report(client, out, request.json(&document)?.send().await?).await
    }
}

/// Formats a version for `If-Match`.
fn tag(version: i64) -> String {
    format!("\"{version}\"")
}
