//! `everytick job`: creates, lists, shows, changes, pauses and triggers jobs on a server.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use everytick_domain::{ids::JobId, job::check_name, time::DbTime};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    backfill::{self, Backfill},
    flow_graph::ParentView,
    job_flags::{self, Document, JobFlags, UpdateFlags},
    preview::{self, PreviewTick},
    run::{self, RunFilter, RunView},
};
use crate::{
    client::{Answer, Client, Fault},
    failure::{Exit, Failure},
    output::{self, Output, Text, Tone},
};

const CREATE_HELP: &str = "\
Examples:
  everytick job create nightly --cron '0 2 * * *' --tz Europe/Paris --url https://example.org/hook
  everytick job create poll --every 15m --url https://example.org/poll --method GET --timeout 10s
  everytick job create cleanup --cron '@daily' -- /usr/local/bin/cleanup --older-than 7d
  everytick job create dump --cron 'H 3 * * *' --shell 'pg_dump app | gzip > /backup/app.gz'
  everytick job create report --cron '0 6 * * 1-5' --exclude holidays --url https://example.org/hook
  everytick job create launch --at 2026-11-16T07:00:00Z --url https://example.org/go --payload '[1]'
  everytick job create load --after extract --url https://example.org/load
  everytick job create -f job.json
  everytick job create --batch jobs.ndjson

A job without --cron, --every or --at runs when it is triggered, or after its --after jobs have ended.
With -f, flags override the file. --batch reads one job per line: it creates every valid job and lists
the errors of the others.";

const LIST_HELP: &str = "\
Examples:
  everytick job list
  everytick job list --label team=billing --target http
  everytick job list -q report -o json | jq -r '.items[].name'";

const GET_HELP: &str = "\
Examples:
  everytick job get nightly
  everytick job get nightly -o json";

const UPDATE_HELP: &str = "\
Examples:
  everytick job update nightly --cron '30 2 * * *'
  everytick job update nightly --timeout 2m --max-retries 5 --label team=billing
  everytick job update nightly --no-schedule --if-version 3

Fields without a flag do not change. Ticks already due under the old definition are recorded first.";

const DELETE_HELP: &str = "\
Examples:
  everytick job delete nightly
  everytick job delete nightly --cancel

The history keeps the job's runs. Runs in progress continue, unless --cancel is set.";

const PAUSE_HELP: &str = "\
Examples:
  everytick job pause nightly --note 'the receiver is being moved'

Once the command returns, no tick gets a run. Runs in progress continue, unless --cancel is set.";

const RESUME_HELP: &str = "\
Examples:
  everytick job resume nightly

Ticks during the pause get no run.";

const TRIGGER_HELP: &str = "\
Examples:
  everytick job trigger nightly
  everytick job trigger nightly --payload '{\"report\": \"monthly\"}'
  everytick job trigger nightly --idempotency-key deploy-812";

const CANCEL_HELP: &str = "\
Examples:
  everytick job cancel nightly

The job continues with its next tick. To stop its ticks too, use `everytick job pause nightly --cancel`.";

const NEXT_HELP: &str = "\
Examples:
  everytick job next nightly
  everytick job next nightly -n 30";

const EXPLAIN_HELP: &str = "\
Examples:
  everytick job explain nightly
  everytick job explain nightly --at 2026-12-25T02:00:00Z
  everytick job explain nightly --at 2026-12-25T02:00:00Z -o json | jq -r .kind

Without --at, the command explains the last tick up to now. A deleted job can be explained while its record is stored.";

const RUNS_HELP: &str = "\
Examples:
  everytick job runs nightly
  everytick job runs nightly --status failed,cancelled --limit 20
  everytick job runs nightly --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z";

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
    Get(Named),
    /// Change the given fields of a job
    #[command(after_help = UPDATE_HELP)]
    Update(Box<Update>),
    /// Delete a job
    #[command(after_help = DELETE_HELP)]
    Delete(Delete),
    /// Pause a job: it has no ticks until it is resumed
    #[command(after_help = PAUSE_HELP)]
    Pause(Pause),
    /// Resume a paused job
    #[command(after_help = RESUME_HELP)]
    Resume(Named),
    /// Trigger a run of a job now
    #[command(after_help = TRIGGER_HELP)]
    Trigger(Trigger),
    /// Create runs for past ticks of a job
    #[command(after_help = backfill::AFTER_HELP)]
    Backfill(Backfill),
    /// Cancel all runs of a job that wait or are in progress
    #[command(after_help = CANCEL_HELP)]
    Cancel(Named),
    /// Show the next ticks of a job
    #[command(after_help = NEXT_HELP)]
    Next(Next),
    /// Explain why a job ran or did not run at an instant
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// List the runs of a job, newest first
    #[command(after_help = RUNS_HELP)]
    Runs(Runs),
}

#[derive(Debug, Args)]
pub(crate) struct Named {
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
    #[arg(long, value_parser = ["http", "shell", "queue"])]
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
    job: Named,
    /// Change the job only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION")]
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
    job: Named,
    /// Also cancel its runs that wait or are in progress
    #[arg(long)]
    cancel: bool,
    /// Delete the job only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION")]
    if_version: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    job: Named,
    /// Store this note with the pause, such as the reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Also cancel its runs that wait or are in progress
    #[arg(long)]
    cancel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Trigger {
    #[command(flatten)]
    job: Named,
    /// Deliver this instead of the job's payload: JSON, or @file, or @- for stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Start the run even if the job's overlap policy would skip it
    #[arg(long)]
    force: bool,
    /// Create only one run, even if the request is repeated with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Next {
    #[command(flatten)]
    job: Named,
    /// Show this many ticks
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    count: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    job: Named,
    /// Explain this instant, such as 2026-12-25T02:00:00Z [default: the last tick up to now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<DbTime>,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    #[command(flatten)]
    job: Named,
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

fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or_else(|| format!("{text:?} is not a number of rows; write 1 or more"))
}

/// The fields of the API's answer that tables show. A missing field is shown empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobView {
    id: String,
    name: String,
    description: String,
    labels: std::collections::BTreeMap<String, String>,
    enabled: bool,
    schedule: Option<ScheduleView>,
    target: Value,
    payload: Option<Box<RawValue>>,
    overlap: String,
    max_concurrent: Option<u32>,
    queue_limit: Option<u32>,
    priority: u8,
    misfire: Value,
    retry: Value,
    timeout: String,
    on_lost: String,
    home_region: Option<String>,
    keep: Option<String>,
    depends_on: Vec<ParentView>,
    version: i64,
    created_at: String,
    created_by: String,
    updated_at: String,
    next_tick: Option<String>,
    last_run: Option<RunView>,
    paused: bool,
    pause_note: Option<String>,
    effective_at: Option<String>,
    backlog: Option<BacklogView>,
    cancelling: bool,
}

#[derive(Debug, Deserialize)]
struct BacklogView {
    action: String,
    done: u64,
    remaining: u64,
}

impl BacklogView {
    fn in_short(&self) -> String {
        format!("{} in the background: {} done, {} left", self.action, self.done, self.remaining)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ScheduleView {
    cron: Option<String>,
    timezone: Option<String>,
    gap: Option<String>,
    fold: Option<String>,
    every: Option<String>,
    at: Option<String>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    jitter: Option<String>,
    exclude: Vec<String>,
}

impl JobCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create(create) => create.run(client, out).await,
            Self::List(list) => list.run(client, out).await,
            Self::Get(Named { job }) => {
                let answer = client.get(&["jobs", &job]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_job(out, answer.read()?) }
            }
            Self::Update(update) => update.run(client, out).await,
            Self::Delete(Delete { job: Named { job }, cancel, if_version }) => {
                let request = client.delete(&["jobs", &job]).header_some("if-match", if_version.map(tag));
                let answer = request.query_some("cancel", cancel.then_some(true)).send().await?;
                done(out, answer, "deleted")
            }
            Self::Pause(Pause { job: Named { job }, note, cancel }) => {
                let body = json!({ "note": note, "cancel": cancel });
                done(out, client.post(&["jobs", &job, "pause"]).json(&body)?.send().await?, "paused")
            }
            Self::Resume(Named { job }) => done(out, client.post(&["jobs", &job, "resume"]).send().await?, "resumed"),
            Self::Trigger(trigger) => trigger.run(client, out).await,
            Self::Backfill(backfill) => backfill.run(client, out).await,
            Self::Cancel(Named { job }) => {
                let answer = client.post(&["jobs", &job, "cancel"]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_cancelled(out, &answer.read()?) }
            }
            Self::Next(Next { job: Named { job }, count }) => {
                let answer = client.get(&["jobs", &job, "next"]).query("count", count).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_next(out, answer.read()?) }
            }
            Self::Explain(Explain { job: Named { job }, at }) => {
                let answer = client.get(&["jobs", &job, "explain"]).query_some("at", at).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print_explanation(out, answer.read()?) }
            }
            Self::Runs(Runs { job: Named { job }, filter, page }) => {
                let request = filter.apply(client.get(&["jobs", &job, "runs"]));
                run::print_list(out, request.list(page.limit, page.cursor).await?)
            }
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
        document.overlay(self.flags.for_create()?);
        if let Some(name) = self.name {
            document.name(name);
        }
        if !document.has_name() {
            return Err(
                Failure::usage("the job has no name; write NAME on the command line, or \"name\" in the file").into()
            );
        }
        let request = client.post(&["jobs"]).header_some("idempotency-key", self.idempotency_key);
        done(out, request.json(&document)?.send().await?, "created")
    }
}

/// The result of one line of a batch.
#[derive(Debug, Deserialize)]
struct BatchLine {
    line: u64,
    name: Option<String>,
    status: u16,
    #[serde(default)]
    errors: Vec<Fault>,
}

async fn create_batch(client: &Client, out: Output, path: &Path) -> anyhow::Result<()> {
    let text = job_flags::read_text(path)?;
    let answer = client.post(&["jobs", "batch"]).body("application/x-ndjson", text.into_bytes()).lines().await?;
    let (mut made, mut refused) = (0_u64, 0_u64);
    for line in answer {
        let read: BatchLine = line.read()?;
        if out.is_json() {
            out.json_line(&line)?;
        }
        if (200..300).contains(&read.status) {
            made += 1;
            continue;
        }
        refused += 1;
        let faults: Vec<String> = read.errors.iter().map(Fault::line).collect();
        let name = read.name.map(|name| format!(" ({name})")).unwrap_or_default();
        output::note_line(&format!("line {}{name}: {}", read.line, faults.join("; ")));
    }
    if !out.is_json() {
        out.line(&format!("{made} created, {refused} refused"))?;
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::new(
            Exit::Failed,
            if made == 0 {
                format!("all {refused} jobs were refused")
            } else {
                format!("{refused} of {} jobs were refused; the others were created", made + refused)
            },
        )
        .into()),
    }
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
        let rows = jobs.into_iter().map(|job| {
            vec![
                Text::strong(&job.name),
                job.standing(),
                Text::plain(job.when()),
                Text::plain(output::first_line(&job.what(), 48)),
                Text::plain(job.next_tick.as_deref().unwrap_or("-")),
                job.last_run.as_ref().map_or(Text::plain("-"), RunView::in_short),
            ]
        });
        out.table(&["NAME", "STATUS", "SCHEDULE", "TARGET", "NEXT TICK", "LAST RUN"], rows.collect())?;
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
        document.overlay(self.flags.for_update(self.update)?);
        if document.is_empty() {
            return Err(Failure::usage("nothing to change; set a flag such as --timeout 2m").into());
        }
        let body = serde_json::to_vec(&document)?;
        let request = client.patch(&["jobs", &self.job.job]).header_some("if-match", self.if_version.map(tag));
        done(out, request.body("application/merge-patch+json", body).send().await?, "updated")
    }
}

impl Trigger {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut document = Document::default();
        document.payload(self.payload.as_deref().map(job_flags::payload).transpose()?);
        if self.force {
            document.force();
        }
        let request =
            client.post(&["jobs", &self.job.job, "trigger"]).header_some("idempotency-key", self.idempotency_key);
        run::print_started(out, request.json(&document)?.send().await?)
    }
}

/// Formats a version for `If-Match`.
fn tag(version: i64) -> String {
    format!("\"{version}\"")
}

fn done(out: Output, answer: Answer, verb: &str) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let job: JobView = answer.read()?;
    let since = job.effective_at.as_ref().map(|at| format!("; in effect since {at}")).unwrap_or_default();
    let next = job.next_tick.as_ref().map(|at| format!("; next tick {at}")).unwrap_or_default();
    let retries = job.longest_retry().filter(|_| verb == "created");
    let retries = retries.map(|total| format!("; retried for at most {total}")).unwrap_or_default();
    let backlog = match (&job.backlog, job.cancelling) {
        (Some(work), _) => format!("; waiting runs: {}", work.in_short()),
        (None, true) => "; its waiting runs are being cancelled in the background and will not start".to_owned(),
        (None, false) => String::new(),
    };
    Ok(out.line(&format!("{} {verb}{since}{next}{retries}{backlog}", job.name))?)
}

#[derive(Debug, Deserialize)]
struct CancelledView {
    job: String,
    cancelled: Vec<String>,
    stopped: Vec<String>,
    #[serde(default)]
    cancelling: bool,
}

fn print_cancelled(out: Output, cancelled: &CancelledView) -> anyhow::Result<()> {
    let CancelledView { job, cancelled, stopped, cancelling } = cancelled;
    if *cancelling {
        let stopped = stopped.len();
        return Ok(out.line(&format!(
            "{job}: {stopped} in progress cancelled; the waiting runs are being cancelled and will not start. \
             `everytick job get {job}` shows how many are left"
        ))?);
    }
    if cancelled.is_empty() {
        return Ok(out.line(&format!("{job}: no open runs"))?);
    }
    let runs = if cancelled.len() == 1 { "run" } else { "runs" };
    Ok(out.line(&format!("{job}: {} {runs} cancelled, {} of them in progress", cancelled.len(), stopped.len()))?)
}

#[derive(Deserialize)]
struct ExplanationView {
    message: String,
    run: Option<String>,
}

fn print_explanation(out: Output, told: ExplanationView) -> anyhow::Result<()> {
    out.line(&told.message)?;
    if let Some(run) = told.run {
        out.line(&format!("everytick run get {run}"))?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Preview {
    description: Option<String>,
    ticks: Vec<PreviewTick>,
}

fn print_next(out: Output, preview: Preview) -> anyhow::Result<()> {
    if let Some(description) = &preview.description {
        out.line(description)?;
        out.line("")?;
    }
    if preview.ticks.is_empty() {
        output::note_line("no upcoming ticks");
        return Ok(());
    }
    Ok(preview::print(out, &preview.ticks)?)
}

fn print_job(out: Output, job: JobView) -> anyhow::Result<()> {
    let labels: Vec<String> = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let some = |text: &Option<String>| Text::plain(text.as_deref().unwrap_or_default());
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let overlap = match (job.max_concurrent, job.queue_limit) {
        (Some(max), _) if job.overlap == "allow" => format!("allow, at most {max} in progress"),
        (_, Some(limit)) => format!("queue, at most {limit} waiting"),
        _ => job.overlap.clone(),
    };
    let misfire = format!(
        "late after {}, catch up {} (at most {}){}",
        word(&job.misfire["late_after"]),
        word(&job.misfire["catch_up"]),
        word(&job.misfire["max_runs"]),
        job.misfire["grace"].as_str().map(|grace| format!(", none older than {grace}")).unwrap_or_default(),
    );
    let retry = format!(
        "{} times, {} doubling to {}, {} in all; {} when lost",
        word(&job.retry["max_retries"]),
        word(&job.retry["base_delay"]),
        word(&job.retry["max_delay"]),
        job.longest_retry().map_or_else(|| "0s".to_owned(), |total| format!("at most {total}")),
        job.on_lost,
    );
    Ok(out.facts(vec![
        ("Name", Text::strong(&job.name)),
        ("Id", Text::plain(&job.id)),
        ("Status", job.standing()),
        ("Note", some(&job.pause_note)),
        ("Description", Text::plain(&job.description)),
        ("Labels", Text::plain(labels.join(", "))),
        ("Schedule", Text::plain(job.when_in_full())),
        ("Target", Text::plain(job.what())),
        ("Payload", Text::plain(job.payload.as_ref().map(|raw| raw.get()).unwrap_or_default())),
        ("Timeout", Text::plain(&job.timeout)),
        ("Retries", Text::plain(retry)),
        ("Overlap", Text::plain(overlap)),
        ("Misfire", Text::plain(misfire)),
        ("Priority", Text::plain(job.priority.to_string())),
        ("Home region", some(&job.home_region)),
        ("Kept for", some(&job.keep)),
        ("After", Text::plain(job.depends_on.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))),
        ("Backlog", Text::plain(job.backlog.as_ref().map(BacklogView::in_short).unwrap_or_default())),
        ("Next tick", some(&job.next_tick)),
        ("Last run", job.last_run.as_ref().map_or(Text::plain(""), RunView::in_short)),
        ("Version", Text::plain(job.version.to_string())),
        ("Created", Text::plain(format!("{} by {}", job.created_at, job.created_by))),
        ("Updated", Text::plain(&job.updated_at)),
    ])?)
}

impl JobView {
    /// The longest total time of all retries of a run. `None` if the job has no retries.
    fn longest_retry(&self) -> Option<&str> {
        self.retry["longest_total"].as_str().filter(|_| self.retry["max_retries"] != 0)
    }

    fn standing(&self) -> Text {
        match (self.enabled, self.paused) {
            (false, _) => Text::new("disabled", Tone::Quiet),
            (true, true) => Text::new("paused", Tone::Warn),
            (true, false) => Text::new("enabled", Tone::Good),
        }
    }

    fn when(&self) -> String {
        let Some(schedule) = &self.schedule else {
            let parents: Vec<String> = self.depends_on.iter().map(ToString::to_string).collect();
            return if parents.is_empty() {
                "when triggered".to_owned()
            } else {
                format!("after {}", parents.join(", "))
            };
        };
        match (&schedule.cron, &schedule.every, &schedule.at) {
            (Some(cron), _, _) => match schedule.timezone.as_deref() {
                None | Some("UTC") => cron.clone(),
                Some(zone) => format!("{cron} {zone}"),
            },
            (_, Some(every), _) => format!("every {every}"),
            (_, _, Some(at)) => format!("at {at}"),
            _ => String::new(),
        }
    }

    fn when_in_full(&self) -> String {
        let mut text = self.when();
        let Some(schedule) = &self.schedule else { return text };
        let parts = [
            ("gap", schedule.gap.as_deref().filter(|gap| *gap != "shift")),
            ("fold", schedule.fold.as_deref().filter(|fold| *fold != "first")),
            ("from", schedule.starts_at.as_deref()),
            ("until", schedule.ends_at.as_deref()),
            ("jitter", schedule.jitter.as_deref()),
        ];
        for (name, value) in parts {
            text += &value.map(|value| format!(", {name} {value}")).unwrap_or_default();
        }
        if !schedule.exclude.is_empty() {
            text += &format!(", except on {}", schedule.exclude.join(", "));
        }
        text
    }

    fn what(&self) -> String {
        let http = &self.target["http"];
        if let (Some(url), method) = (http["url"].as_str(), http["method"].as_str().unwrap_or("POST")) {
            return format!("{method} {url}");
        }
        if let Some(queue) = self.target["queue"]["name"].as_str() {
            return format!("queue {queue}");
        }
        let command = &self.target["shell"]["command"];
        if let Some(argv) = command["argv"].as_array() {
            return argv.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        }
        command["script"].as_str().map(|script| format!("sh -c {script}")).unwrap_or_default()
    }
}
