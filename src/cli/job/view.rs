//! Jobs as tables and lists show them.

use everytick_targets::{KINDS, KindInfo};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{bulk::OpenCount, followed::Refused};
use crate::{
    cli::{flow_graph::ParentView, preview::Ticks, run::RunView},
    client::{Answer, FieldError, Page},
    failure::{Exit, Failure},
    output::{self, Output, Text, Tone},
};

/// The fields of the API's answer that tables show. A missing field is shown empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobView {
    id: String,
    pub(super) name: String,
    description: String,
    labels: std::collections::BTreeMap<String, String>,
    enabled: bool,
    schedule: Option<ScheduleView>,
    target: Value,
    payload: Option<Box<RawValue>>,
    payload_secrets: bool,
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
    pub(super) next_tick: Option<String>,
    pub(super) last_run: Option<RunView>,
    paused: bool,
    pause_note: Option<String>,
    effective_at: Option<String>,
    backlog: Option<BacklogView>,
    cancelling: bool,
    warnings: Vec<FieldError>,
    pub(super) followers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct BacklogView {
    action: String,
    done: u64,
    remaining: u64,
}

impl BacklogView {
    fn summary(&self) -> String {
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

/// The line for an answer to `job resume`. A disabled job that was not paused has no ticks after the command either, which is
/// an error.
pub(super) fn resumed_line(out: Output, answer: &Answer) -> anyhow::Result<String> {
    let job: JobView = answer.read()?;
    let enable = format!("enable it with `everytick job update {} --enabled`", job.name);
    if !job.enabled && job.effective_at.is_none() {
        let message = format!("{} is disabled and not paused, so there is nothing to resume; {enable}", job.name);
        return Err(Failure::new(Exit::Conflict, message).into());
    }
    if !job.enabled {
        output::note_line(&format!("{} is disabled, so it has no ticks; {enable}", job.name));
    }
    changed_line(out, answer, "resumed")
}

pub(super) fn print_changed(out: Output, answer: Answer, verb: &str) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    out.line(&changed_line(out, &answer, verb)?)?;
    for warning in answer.read::<JobView>()?.warnings {
        output::note_line(&format!("warning: {}", warning.line()));
    }
    Ok(())
}

/// The line for an answer to an edit.
pub(super) fn changed_line(out: Output, answer: &Answer, verb: &str) -> anyhow::Result<String> {
    let job: JobView = answer.read()?;
    if let Some(unchanged) = job.unchanged(verb) {
        return Ok(unchanged);
    }
    let out = out.in_zone(job.zone().as_deref());
    let since = job.effective_at.as_ref().map(|at| format!("; in effect since {}", out.time(at))).unwrap_or_default();
    let next = job.next_tick.as_ref().map(|at| format!("; next tick {}", out.time(at))).unwrap_or_default();
    let retries = job.longest_retry().filter(|_| verb == "created");
    let retries = retries.map(|total| format!("; retried for at most {total}")).unwrap_or_default();
    let backlog = match (&job.backlog, job.cancelling) {
        (Some(work), _) => format!("; waiting runs: {}", work.summary()),
        (None, true) => "; its waiting runs are being cancelled in the background and will not start".to_owned(),
        (None, false) => String::new(),
    };
    Ok(format!("{} {verb}{since}{next}{retries}{backlog}", job.name))
}

/// What a dry run prints.
#[derive(Serialize)]
struct DryRun<'a> {
    dry_run: bool,
    items: &'a [Answer],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    refused: &'a [Refused],
}

/// Prints the jobs that a command on several jobs would change; `open` has the number of open runs of each.
pub(super) fn print_selected(
    out: Output,
    jobs: &Page,
    open: Option<&[OpenCount]>,
    refused: &[Refused],
) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(&DryRun { dry_run: true, items: &jobs.items, refused })?);
    }
    let row = |(index, job): (usize, JobView)| {
        let next = job.next_tick.as_ref().map_or_else(|| "-".to_owned(), |at| out.time(at));
        let mut row =
            vec![Text::strong(&job.name), job.status(), Text::plain(job.schedule_summary(out)), Text::plain(next)];
        row.extend(open.and_then(|open| open.get(index)).map(|count| Text::number(count.to_string())));
        row
    };
    let rows: Vec<_> = jobs.read::<JobView>()?.into_iter().enumerate().map(row).collect();
    let header = ["NAME", "STATUS", "SCHEDULE", "NEXT TICK", "OPEN RUNS"];
    let columns = if open.is_some() { 5 } else { 4 };
    if rows.is_empty() { Ok(()) } else { Ok(out.table(&header[..columns], rows)?) }
}

#[derive(Debug, Deserialize)]
struct CancelledView {
    job: String,
    cancelled: Vec<String>,
    stopped: Vec<String>,
    #[serde(default)]
    cancelling: bool,
}

/// The line for an answer to `job cancel`.
pub(super) fn cancelled_line(answer: &Answer) -> anyhow::Result<String> {
    let CancelledView { job, cancelled, stopped, cancelling } = answer.read()?;
    let (all, stopped) = (cancelled.len(), stopped.len());
    Ok(match (cancelling, all) {
        (true, _) => format!(
            "{job}: {stopped} in progress cancelled; the waiting runs are being cancelled and will not start. \
             `everytick job get {job}` shows how many are left"
        ),
        (false, 0) => format!("{job}: no open runs"),
        (false, 1) => format!("{job}: 1 run cancelled, {stopped} of them in progress"),
        (false, _) => format!("{job}: {all} runs cancelled, {stopped} of them in progress"),
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct Preview {
    description: Option<String>,
    #[serde(flatten)]
    ticks: Ticks,
    #[serde(default)]
    no_ticks: Option<String>,
}

/// `zone` is that of the job.
pub(super) fn print_next(out: Output, preview: Preview, zone: Option<&str>) -> anyhow::Result<()> {
    if let Some(description) = &preview.description {
        out.line(description)?;
        out.line("")?;
    }
    if preview.ticks.is_empty() {
        output::note_line(preview.no_ticks.as_deref().unwrap_or("no upcoming ticks"));
        return Ok(());
    }
    let ticks = if zone.is_none() { preview.ticks.in_local_zone(out) } else { preview.ticks };
    Ok(ticks.print(out)?)
}

pub(super) fn print_job(out: Output, job: JobView) -> anyhow::Result<()> {
    let out = out.in_zone(job.zone().as_deref());
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
    let retry = match job.longest_retry() {
        None => format!("none; {} when lost", job.on_lost),
        Some(total) => format!(
            "{} times, {} doubling to {}, at most {total} in all; {} when lost",
            word(&job.retry["max_retries"]),
            word(&job.retry["base_delay"]),
            word(&job.retry["max_delay"]),
            job.on_lost,
        ),
    };
    let mut facts = vec![
        ("Name", Text::strong(&job.name)),
        ("Id", Text::plain(&job.id)),
        ("Status", job.status()),
        ("Note", some(&job.pause_note)),
        ("Description", Text::plain(&job.description)),
        ("Labels", Text::plain(labels.join(", "))),
        ("Schedule", Text::plain(job.full_schedule(out))),
        ("Target", Text::plain(job.target_summary())),
    ];
    facts.extend(job.target_details().into_iter().map(|(name, text)| (name, Text::plain(text))));
    facts.extend([
        ("Payload", Text::plain(job.payload.as_ref().map(|raw| raw.get()).unwrap_or_default())),
        ("Payload secrets", Text::plain(if job.payload_secrets { "filled in" } else { "" })),
        ("Timeout", Text::plain(&job.timeout)),
        ("Retries", Text::plain(retry)),
        ("Overlap", Text::plain(overlap)),
        ("Misfire", Text::plain(misfire)),
        ("Priority", Text::plain(job.priority.to_string())),
        ("Home region", some(&job.home_region)),
        ("Kept for", some(&job.keep)),
        ("After", Text::plain(job.depends_on.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))),
        ("Followers", Text::plain(job.followers.join(", "))),
        ("Backlog", Text::plain(job.backlog.as_ref().map(BacklogView::summary).unwrap_or_default())),
        ("Next tick", out.time_of(job.next_tick.as_ref())),
        ("Last run", job.last_run.as_ref().map_or(Text::plain(""), |run| run.summary(out))),
        ("Version", Text::plain(job.version.to_string())),
        ("Created", Text::plain(format!("{} by {}", out.time(&job.created_at), job.created_by))),
        ("Updated", Text::plain(out.time(&job.updated_at))),
    ]);
    Ok(out.facts(facts)?)
}

impl JobView {
    /// The line of a command that found the job as requested and changed nothing.
    fn unchanged(&self, verb: &str) -> Option<String> {
        let is = match verb {
            "paused" => "is paused already",
            "resumed" => "is not paused",
            "updated" => "is defined like this already",
            _ => return None,
        };
        let same = self.effective_at.is_none() && self.backlog.is_none() && !self.cancelling;
        same.then(|| format!("{} {is}; nothing was changed", self.name))
    }

    /// The longest total time of all retries of a run. `None` if the job has no retries.
    fn longest_retry(&self) -> Option<&str> {
        self.retry["longest_total"].as_str().filter(|_| self.retry["max_retries"] != 0)
    }

    /// The name of the zone of the schedule. `None` for a schedule without a zone.
    pub(super) fn zone(&self) -> Option<String> {
        self.schedule.as_ref()?.timezone.clone()
    }

    pub(super) fn status(&self) -> Text {
        match (self.enabled, self.paused) {
            (false, _) => Text::new("disabled", Tone::Quiet),
            (true, true) => Text::new("paused", Tone::Warn),
            (true, false) => Text::new("enabled", Tone::Good),
        }
    }

    pub(super) fn schedule_summary(&self, out: Output) -> String {
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
            (_, _, Some(at)) => format!("at {}", out.time(at)),
            _ => String::new(),
        }
    }

    fn full_schedule(&self, out: Output) -> String {
        let mut text = self.schedule_summary(out);
        let Some(schedule) = &self.schedule else { return text };
        let parts = [
            ("gap", schedule.gap.clone().filter(|gap| *gap != "shift")),
            ("fold", schedule.fold.clone().filter(|fold| *fold != "first")),
            ("from", schedule.starts_at.as_ref().map(|at| out.time(at))),
            ("until", schedule.ends_at.as_ref().map(|at| out.time(at))),
            ("jitter", schedule.jitter.clone()),
        ];
        for (name, value) in parts {
            text += &value.map(|value| format!(", {name} {value}")).unwrap_or_default();
        }
        if !schedule.exclude.is_empty() {
            text += &format!(", except on {}", schedule.exclude.join(", "));
        }
        text
    }

    fn target_details(&self) -> Vec<(&'static str, String)> {
        KINDS.iter().flat_map(|info| (info.details)(&self.target[info.kind.word()])).collect()
    }

    pub(super) fn target_summary(&self) -> String {
        let summary = |info: &KindInfo| (info.summary)(&self.target[info.kind.word()]);
        KINDS.iter().find_map(summary).unwrap_or_default()
    }
}
