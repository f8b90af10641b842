//! `everytick run redrive`: repeats the failed runs of jobs. The failed runs of a job are its dead-letter list.

use std::collections::{BTreeSet, HashSet};

use clap::Args;
use everytick_domain::{
    instant::{InstantText, Lean},
    time::DbTime,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    fit::{self, Column, Layout, Precision},
    ids::ShortIds,
    job::{self, BulkCommand, BulkOpenRuns, BulkVerb, Confirmation, job_ref},
    run::{RunView, state_text},
};
use crate::{
    client::Client,
    output::{self, Output, Text},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick run redrive nightly --from yesterday --dry-run
  everytick run redrive nightly --from '2026-11-16 02:00'
  everytick run redrive --label team=billing --from '2h ago' --yes
  everytick run list --job nightly --status failed

Creates one new run for each failed run, for the same instant and with the same payload. The failed run does not change.
A repeated call creates no duplicates: it shows the state of the new runs. A new run that failed is itself repeated.

With several jobs, --label or --all, the command asks for a confirmation, unless --yes is set. Each job is redriven on its own: a
job that fails does not stop the others, and the command then exits with 1.";

/// The widest column of errors, and the narrowest one. In less space, the table has no errors.
const ERROR_MAX: usize = 60;
const ERROR_MIN: usize = 11;
const FAILED_PER_READ: usize = 1_000;

#[derive(Debug, Args)]
pub(crate) struct Redrive {
    /// Repeat failed runs of these jobs
    #[arg(value_name = "JOB", value_parser = job_ref, required_unless_present_any = ["job", "label", "all"])]
    jobs: Vec<String>,
    /// Repeat failed runs of this job; repeatable
    #[arg(long, value_name = "JOB", value_parser = job_ref)]
    job: Vec<String>,
    /// Repeat failed runs of the jobs with this label; if repeated, with all of them
    #[arg(long, value_name = "KEY[=VALUE]", conflicts_with_all = ["jobs", "job"])]
    label: Vec<String>,
    /// Repeat failed runs of all jobs
    #[arg(long, conflicts_with_all = ["jobs", "job", "label"])]
    all: bool,
    /// Repeat failed runs scheduled at this time or later; at most 7 days ago
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: InstantText,
    /// Repeat failed runs scheduled before this time
    #[arg(long, visible_alias = "until", value_name = "TIME", allow_hyphen_values = true)]
    to: Option<InstantText>,
    /// Repeat at most this many of each job, oldest first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::number::whole::<u32>(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Debug, Deserialize)]
struct Redriven {
    #[serde(default)]
    job: String,
    items: Vec<Pair>,
    next_from: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    failed: RunView,
    run: String,
    state: Option<String>,
    made: bool,
}

impl Redrive {
    pub(crate) async fn run(mut self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.append(&mut self.job);
        match jobs.as_slice() {
            [job] => self.one(client, out, job).await,
            _ => self.several(client, out, jobs).await,
        }
    }

    fn body(&self, out: Output, zone: Option<&str>) -> anyhow::Result<(DbTime, Value)> {
        let read = |flag, text: &InstantText| out.times().read(flag, text, Lean::Past, zone);
        let from = read("from", &self.from)?;
        let to = self.to.as_ref().map(|text| read("to", text)).transpose()?;
        let body = json!({
            "from": from.to_string(), "to": to.map(|at| at.to_string()),
            "limit": self.limit, "dry_run": self.confirmation.dry_run,
        });
        Ok((from, body))
    }

    async fn several(self, client: &Client, out: Output, mut jobs: Vec<String>) -> anyhow::Result<()> {
        let (from, body) = self.body(out, None)?;
        if jobs.is_empty() {
            jobs = failed_jobs(client, from, &self.label).await?;
        }
        let command = BulkCommand {
            verb: BulkVerb { now: "repeat the failed runs of", done: "redriven" },
            request: &|job| client.post(&["jobs", job, "redrive"]).json(&body),
            line: &|answer| Ok(answer.read::<Redriven>()?.line(self.limit)),
            retry_conflicts: false,
            open_runs: BulkOpenRuns::Untouched,
        };
        command.on_each(out, self.confirmation, jobs).await
    }

    async fn one(&self, client: &Client, out: Output, job: &str) -> anyhow::Result<()> {
        let zone = job::zone(client, job).await?;
        let (_, body) = self.body(out, zone.as_deref())?;
        let answer = client.post(&["jobs", job, "redrive"]).json(&body)?.send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let out = out.in_zone(zone.as_deref());
        let redriven = answer.read::<Redriven>()?.in_chains();
        if redriven.items.is_empty() {
            output::note_line("no failed runs");
            return Ok(());
        }
        let layout = |precision, error_min| redriven.layout(out, precision, error_min);
        let (seconds, minutes) = (Precision::Seconds, Precision::Minutes);
        let layouts = [(seconds, Some(ERROR_MAX)), (minutes, Some(ERROR_MIN)), (minutes, None)];
        fit::first_that_fits(out, layouts.map(|(precision, error_min)| layout(precision, error_min)))?;
        out.line(&redriven.total())?;
        if self.confirmation.dry_run {
            output::note_line("dry run: nothing was changed");
        }
        if let Some(next) = &redriven.next_from {
            let when = if redriven.is_cut(self.limit) { "" } else { ", when the new runs have ended" };
            output::note_line(&format!("there are more; continue with --from {}{when}", out.time(next)));
        }
        Ok(())
    }
}

impl Redriven {
    /// Orders the runs so that the redrive of a redriven run follows it.
    fn in_chains(mut self) -> Self {
        let mut rest = std::mem::take(&mut self.items);
        while !rest.is_empty() {
            let is_first = |pair: &Pair| rest.iter().all(|other| other.run != pair.failed.id);
            let mut next = Some(rest.iter().position(is_first).unwrap_or(0));
            while let Some(index) = next {
                let pair = rest.remove(index);
                next = rest.iter().position(|other| other.failed.id == pair.run);
                self.items.push(pair);
            }
        }
        self
    }

    /// The table; without `error_min`, it has no errors.
    fn layout(&self, out: Output, precision: Precision, error_min: Option<usize>) -> Layout {
        let items = &self.items;
        let ids = ShortIds::of(items.iter().flat_map(|pair| [pair.failed.id.as_str(), pair.run.as_str()]));
        let instants = items.iter().map(|pair| pair.failed.scheduled_at.as_str());
        let (zone, times) = fit::times_to(precision, out, instants);
        let new = |pair: &Pair| match pair.state {
            Some(_) => Text::plain(ids.short(&pair.run)),
            None => Text::plain("would be created"),
        };
        let when = |pair: &Pair| match (pair.made, &pair.state) {
            (true, _) => Text::plain("now"),
            (false, Some(_)) => Text::plain("before"),
            (false, None) => Text::plain(""),
        };
        let mut columns = vec![
            Column::whole("FAILED", items.iter().map(|pair| Text::plain(ids.short(&pair.failed.id)))),
            Column::whole(format!("SCHEDULED{zone}"), times.iter().map(Text::plain)),
            Column::whole("NEW RUN", items.iter().map(new)),
            Column::whole("STATE", items.iter().map(|pair| state_text(pair.state.as_deref().unwrap_or_default()))),
            Column::whole("CREATED", items.iter().map(when)),
        ];
        let error =
            |pair: &Pair| Text::plain(output::first_line(pair.failed.error.as_deref().unwrap_or_default(), ERROR_MAX));
        columns.extend(error_min.map(|min| Column::cut("ERROR", min, items.iter().map(error))));
        Layout::of(columns)
    }

    /// Whether failed runs remain because of --limit. The other reason is that no more runs of the job may wait at present.
    fn is_cut(&self, limit: u32) -> bool {
        self.next_from.is_some() && self.items.len() >= limit as usize
    }

    fn line(&self, limit: u32) -> String {
        let more = match self.next_from {
            None => "",
            Some(_) if self.is_cut(limit) => "; there are more, raise --limit",
            Some(_) => "; there are more, repeat the command when the new runs have ended",
        };
        format!("{}{more}", self.total())
    }

    /// `nightly: 2 runs created; 1 was created before`
    fn total(&self) -> String {
        let count = |test: fn(&Pair) -> bool| self.items.iter().filter(|pair| test(pair)).count();
        let (made, would) = (count(|pair| pair.made), count(|pair| !pair.made && pair.state.is_none()));
        let (job, before) = (&self.job, self.items.len() - made - would);
        let before = match before {
            0 => String::new(),
            1 => "; 1 was created before".to_owned(),
            _ => format!("; {before} were created before"),
        };
        let runs = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
        match (self.items.len(), would) {
            (0, _) => format!("{job}: no failed runs"),
            (_, 0) => format!("{job}: {} created{before}", runs(made)),
            (_, would) => format!("{job}: {} would be created{before}", runs(would)),
        }
    }
}

/// The names of the jobs with these labels that have failed runs from this instant on.
async fn failed_jobs(client: &Client, from: DbTime, labels: &[String]) -> anyhow::Result<Vec<String>> {
    let request = client.get(&["runs"]).query("status", "failed").query("from", from);
    let (mut found, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = request.clone().list(FAILED_PER_READ, cursor).await?;
        found.extend(page.read::<RunView>()?.into_iter().map(|run| run.job));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !found.is_empty() {
        // Needed even without labels: a deleted job still has runs, but they cannot be redriven.
        let selected: HashSet<String> = job::names_with(client, labels).await?.into_iter().collect();
        found.retain(|job| selected.contains(job));
    }
    Ok(found.into_iter().collect())
}
