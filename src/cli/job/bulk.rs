//! Commands on several jobs: which jobs, the dry run, the confirmation, the progress and the summary. Each job is one request
//! and so one transaction. A job that fails does not stop the others.

use std::{
    fmt,
    io::{self, BufRead, IsTerminal, Write},
};

use clap::Args;
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{
    followed, job_ref,
    view::{JobView, print_selected},
};
use crate::{
    client::{Answer, Client, Page, Request},
    failure::{self, Exit, Failure},
    output::{self, Output},
};

/// Requests in progress at a time. The API of a node has 4 database connections.
const IN_FLIGHT: usize = 4;
/// From this number of jobs on, a terminal shows a progress bar.
const BAR_FROM: usize = 10;
/// How many jobs the question names.
const NAMED_MAX: usize = 5;
/// A dry run counts at most this many open runs of a job.
const OPEN_COUNTED_MAX: usize = 1_000;

/// Which jobs a command changes.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// The names or ids of the jobs
    #[arg(value_name = "JOB", value_parser = job_ref, required_unless_present_any = ["label", "all"])]
    jobs: Vec<String>,
    /// Select the jobs with this label; if repeated, with all of them
    #[arg(long, value_name = "KEY[=VALUE]", conflicts_with = "jobs")]
    label: Vec<String>,
    /// Select all jobs
    #[arg(long, conflicts_with_all = ["jobs", "label"])]
    all: bool,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// What a command on several jobs does before it changes them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Confirmation {
    /// List what the command would do, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for a confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The words of a command: "pause 3 jobs", "3 paused".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verb {
    pub(crate) now: &'static str,
    pub(crate) done: &'static str,
}

/// A command on each of several jobs.
pub(crate) struct Command<'a> {
    pub(crate) verb: Verb,
    pub(crate) request: &'a dyn Fn(&str) -> anyhow::Result<Request<'a>>,
    /// The line for a job from the answer. An error counts as a failure of the job.
    pub(crate) line: &'a dyn Fn(&Answer) -> anyhow::Result<String>,
    /// Send a refused request again after others have succeeded: a job can be deleted when its followers are deleted.
    pub(crate) retry_conflicts: bool,
    /// What a dry run does about the open runs of the jobs.
    pub(crate) open_runs: OpenRuns,
}

/// What a command does with the open runs of its jobs, and so what its dry run lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenRuns {
    /// The command does not change the open runs. A dry run does not list them.
    Untouched,
    /// The command changes the job and also cancels its open runs. A dry run counts the open runs.
    Cancelled,
    /// The command only cancels open runs. A dry run counts them, and leaves out jobs without open runs.
    Only,
}

/// The outcome for each job, as `-o json` prints it.
#[derive(Debug, Default, Serialize)]
struct Report {
    done: usize,
    failed: usize,
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
struct Item {
    job: String,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Selection {
    /// The job, if the command names exactly one. The command then prints the answer to its request and exits with its code.
    fn one(&self) -> Option<&str> {
        match self.jobs.as_slice() {
            [one] if !self.confirmation.dry_run => Some(one),
            _ => None,
        }
    }

    /// Refuses a flag for one job unless the command names exactly one.
    pub(crate) fn only_one(&self, flag: &str) -> Result<(), Failure> {
        match self.jobs.as_slice() {
            [_] => Ok(()),
            _ => Err(Failure::usage(format!("{flag} applies to one job; name exactly one"))),
        }
    }

    /// Runs the command on the selected jobs. A selection by label or --all includes only jobs that match `filter`.
    pub(crate) async fn run(
        self,
        client: &Client,
        out: Output,
        filter: &[(&str, bool)],
        command: &Command<'_>,
    ) -> anyhow::Result<()> {
        if let Some(job) = self.one() {
            return command.on_one(out, job).await;
        }
        let verb = command.verb;
        if self.confirmation.dry_run {
            let mut jobs = self.selected(client, filter).await?;
            let is_one = self.jobs.len() == 1;
            let refused = if command.retry_conflicts { followed::split(client, &mut jobs).await? } else { Vec::new() };
            let open = match command.open_runs {
                OpenRuns::Untouched => None,
                how => Some(count_open_runs(client, &mut jobs, how).await?),
            };
            print_selected(out, &jobs, open.as_deref(), &refused)?;
            output::note_line(&format!("dry run: would {}; nothing was changed", counted(verb.now, jobs.items.len())));
            return followed::failure(&refused, is_one);
        }
        let names = match self.jobs.is_empty() {
            false => self.jobs,
            true => names(&list(client, &self.label, filter).await?)?,
        };
        command.on_each(out, self.confirmation, names).await
    }

    /// The selected jobs as the API answers them.
    async fn selected(&self, client: &Client, filter: &[(&str, bool)]) -> anyhow::Result<Page> {
        if self.jobs.is_empty() {
            return list(client, &self.label, filter).await;
        }
        let mut items = Vec::new();
        for job in &self.jobs {
            items.push(client.get(&["jobs", job]).send().await?);
        }
        Ok(Page { items, next_cursor: None, searched_to: None })
    }
}

/// The number of open runs of each job. Under [`OpenRuns::Only`], leaves out jobs without open runs.
async fn count_open_runs(client: &Client, jobs: &mut Page, how: OpenRuns) -> anyhow::Result<Vec<OpenCount>> {
    let (mut kept, mut counts) = (Vec::new(), Vec::new());
    for job in std::mem::take(&mut jobs.items) {
        let name = job.read::<JobView>()?.name;
        let request = client.get(&["jobs", &name, "runs"]).query("status", "waiting,claimed");
        let open = OpenCount::of(&request.list(OPEN_COUNTED_MAX, None).await?);
        if how != OpenRuns::Only || open.may_exist() {
            kept.push(job);
            counts.push(open);
        }
    }
    jobs.items = kept;
    Ok(counts)
}

/// The open runs of a job that a dry run has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenCount {
    found: usize,
    /// The list was not read to its end, so there may be more.
    is_partial: bool,
}

impl OpenCount {
    fn of(open: &Page) -> Self {
        Self { found: open.items.len(), is_partial: open.next_cursor.is_some() }
    }

    /// Among very many ended runs, an old open run may not have been found.
    const fn may_exist(self) -> bool {
        self.found > 0 || self.is_partial
    }
}

impl fmt::Display for OpenCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { found: 0, is_partial: true } => f.write_str("unknown"),
            Self { found, is_partial: true } => write!(f, "{found} or more"),
            Self { found, is_partial: false } => found.fmt(f),
        }
    }
}

/// All jobs with these labels.
async fn list(client: &Client, labels: &[String], filter: &[(&str, bool)]) -> anyhow::Result<Page> {
    let mut request = client.get(&["jobs"]);
    for label in labels {
        request = request.query("label", label);
    }
    for (name, value) in filter {
        request = request.query(name, value);
    }
    request.list(usize::MAX, None).await
}

/// The names of all jobs with these labels.
pub(crate) async fn names_with(client: &Client, labels: &[String]) -> anyhow::Result<Vec<String>> {
    names(&list(client, labels, &[]).await?)
}

fn names(jobs: &Page) -> anyhow::Result<Vec<String>> {
    Ok(jobs.read::<JobView>()?.into_iter().map(|job| job.name).collect())
}

/// "pause 3 jobs"
fn counted(verb: &str, count: usize) -> String {
    format!("{verb} {count} {}", if count == 1 { "job" } else { "jobs" })
}

impl Confirmation {
    /// Asks whether to change these jobs. An error if the answer is no, or if there is no terminal to ask.
    fn confirm(self, verb: Verb, jobs: &[String]) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let what = question(verb, jobs);
        if !io::stdin().is_terminal() {
            let message = format!(
                "{what}: nothing was changed, because this needs a confirmation and stdin is not a terminal; add --yes, or \
                 show the jobs with --dry-run"
            );
            return Err(Failure::usage(message).into());
        }
        let mut terminal = io::stderr().lock();
        write!(terminal, "{what}? [y/N] ")?;
        terminal.flush()?;
        if is_yes(&mut io::stdin().lock())? {
            return Ok(());
        }
        Err(Failure::new(Exit::Failed, "not confirmed; nothing was changed").into())
    }
}

/// "pause 3 jobs (a, b, c)"
fn question(verb: Verb, jobs: &[String]) -> String {
    let mut named = jobs.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if jobs.len() > NAMED_MAX {
        named += ", ...";
    }
    format!("{} ({named})", counted(verb.now, jobs.len()))
}

/// Reads one line. Everything but a clear yes means no.
fn is_yes(answer: &mut impl BufRead) -> io::Result<bool> {
    let mut line = String::new();
    answer.read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

impl<'a> Command<'a> {
    async fn on_one(&self, out: Output, job: &str) -> anyhow::Result<()> {
        let answer = (self.request)(job)?.send().await?;
        let line = (self.line)(&answer);
        if out.is_json() {
            out.json(&answer)?;
            return line.map(drop);
        }
        Ok(out.line(&line?)?)
    }

    /// Asks for a confirmation, runs the command on each job, and prints the outcome. An error if a job failed.
    pub(crate) async fn on_each(
        &self,
        out: Output,
        confirmation: Confirmation,
        mut jobs: Vec<String>,
    ) -> anyhow::Result<()> {
        let mut seen = std::collections::HashSet::new();
        jobs.retain(|job| seen.insert(job.clone()));
        if !confirmation.dry_run && !jobs.is_empty() {
            confirmation.confirm(self.verb, &jobs)?;
        }
        let total = jobs.len();
        let mut work = Work { out, bar: bar(total), report: Report::default() };
        let ended = self.rounds(&mut work, jobs).await;
        work.bar.finish_and_clear();
        let Report { done, failed, .. } = work.report;
        if out.is_json() {
            out.json(&work.report)?;
        }
        ended?;
        output::note_line(&match total {
            0 => "no job matches; nothing was changed".to_owned(),
            _ if confirmation.dry_run => "dry run: nothing was changed".to_owned(),
            _ => format!("{done} {}, {failed} failed", self.verb.done),
        });
        match failed {
            0 => Ok(()),
            _ => Err(Failure::new(Exit::Failed, format!("{failed} of {total} jobs failed")).into()),
        }
    }

    /// Sends the requests, in rounds while refused ones may still succeed. An error if no server answers any more.
    async fn rounds(&self, work: &mut Work, mut jobs: Vec<String>) -> anyhow::Result<()> {
        loop {
            let (before, mut refused) = (work.report.done, Vec::new());
            let mut results = stream::iter(jobs).map(|job| self.send(job)).buffered(IN_FLIGHT);
            while let Some((job, result)) = results.next().await {
                match result {
                    Ok((answer, line)) => work.done(job, answer, &line)?,
                    Err(error) => match failure::exit(&error) {
                        Exit::NoServer => return Err(error),
                        Exit::Conflict if self.retry_conflicts => refused.push((job, error)),
                        _ => work.failed(job, &error),
                    },
                }
            }
            if work.report.done == before {
                refused.drain(..).for_each(|(job, error)| work.failed(job, &error));
            }
            if refused.is_empty() {
                return Ok(());
            }
            jobs = refused.into_iter().map(|(job, _)| job).collect();
        }
    }

    async fn send(&self, job: String) -> (String, anyhow::Result<(Answer, String)>) {
        let result = async {
            let answer = (self.request)(&job)?.send().await?;
            let line = (self.line)(&answer)?;
            Ok((answer, line))
        };
        let result = result.await;
        (job, result)
    }
}

/// The progress of a command on several jobs.
struct Work {
    out: Output,
    bar: ProgressBar,
    report: Report,
}

impl Work {
    fn done(&mut self, job: String, answer: Answer, line: &str) -> anyhow::Result<()> {
        self.report.done += 1;
        self.report.items.push(Item { job, done: true, answer: Some(answer), error: None });
        self.bar.inc(1);
        let out = self.out;
        if !out.is_json() {
            self.bar.suspend(|| out.line(line))?;
        }
        Ok(())
    }

    fn failed(&mut self, job: String, error: &anyhow::Error) {
        let error = format!("{error:#}");
        self.report.failed += 1;
        self.bar.inc(1);
        let line = output::error_text(&format!("{job}: {error}"));
        self.bar.suspend(|| output::note_line(&line));
        self.report.items.push(Item { job, done: false, answer: None, error: Some(error) });
    }
}

fn bar(total: usize) -> ProgressBar {
    if total < BAR_FROM || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64);
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_confirms() {
        for (line, yes) in
            [("y\n", true), ("YES\r\n", true), ("", false), ("\n", false), ("n\n", false), ("yep\n", false)]
        {
            assert_eq!(is_yes(&mut line.as_bytes()).unwrap(), yes, "{line:?}");
        }
    }

    #[test]
    fn a_job_whose_runs_were_not_all_read_may_have_open_runs() {
        let page = |found, next_cursor: Option<&str>| {
            let items = (0..found).map(|_| serde_json::from_str("{}").unwrap()).collect();
            Page { items, next_cursor: next_cursor.map(str::to_owned), searched_to: None }
        };
        for (found, next_cursor, text, may_exist) in [
            (0, None, "0", false),
            (0, Some("c"), "unknown", true),
            (2, None, "2", true),
            (2, Some("c"), "2 or more", true),
        ] {
            let open = OpenCount::of(&page(found, next_cursor));
            assert_eq!((open.to_string().as_str(), open.may_exist()), (text, may_exist));
        }
    }

    #[test]
    fn the_question_names_the_first_jobs_and_counts_all() {
        let jobs = |count: usize| (0..count).map(|n| format!("j{n}")).collect::<Vec<_>>();
        let verb = Verb { now: "pause", done: "paused" };
        assert_eq!(question(verb, &jobs(1)), "pause 1 job (j0)");
        assert_eq!(question(verb, &jobs(7)), "pause 7 jobs (j0, j1, j2, j3, j4, ...)");
    }
}
