//! `everytick run redrive`: repeats the failed runs of a job, which are its dead-letter list.

use clap::Args;
use everytick_domain::instant::{InstantText, Lean};
use serde::Deserialize;
use serde_json::json;

use super::{
    job::{self, job_ref},
    run::{RunView, state_text},
};
use crate::{
    client::Client,
    output::{self, Output, Text},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick run redrive --job nightly --since yesterday --dry-run
  everytick run redrive --job nightly --since '2026-11-16 02:00'
  everytick run list --job nightly --status failed

Creates one new run for each failed run, for the same instant and with the same payload. The failed run does not change.
A repeated call creates no duplicates: it shows the state of the new runs. A new run that failed is itself repeated.";

#[derive(Debug, Args)]
pub(crate) struct Redrive {
    /// Repeat failed runs of this job
    #[arg(long, value_name = "JOB", value_parser = job_ref)]
    job: String,
    /// Repeat failed runs scheduled at this time or later; at most 7 days ago
    #[arg(long, visible_alias = "from", value_name = "TIME", allow_hyphen_values = true)]
    since: InstantText,
    /// Repeat failed runs scheduled at this time or earlier
    #[arg(long, visible_alias = "to", value_name = "TIME", allow_hyphen_values = true)]
    until: Option<InstantText>,
    /// Repeat at most this many, oldest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    /// Show the runs and create nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
struct Redriven {
    items: Vec<Pair>,
    next_since: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    failed: RunView,
    run: String,
    state: Option<String>,
    made: bool,
}

impl Redrive {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let zone = job::zone(client, &self.job).await?;
        let read = |flag, text: &InstantText| out.times().read(flag, text, Lean::Past, zone.as_deref());
        let since = read("since", &self.since)?;
        let until = self.until.as_ref().map(|text| read("until", text)).transpose()?;
        let body = json!({
            "since": since.to_string(), "until": until.map(|at| at.to_string()),
            "limit": self.limit, "dry_run": self.dry_run,
        });
        let answer = client.post(&["jobs", &self.job, "redrive"]).json(&body)?.send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let out = out.in_zone(zone.as_deref());
        let redriven: Redriven = answer.read()?;
        if redriven.items.is_empty() {
            output::note_line("no failed runs");
            return Ok(());
        }
        let rows = redriven.items.iter().map(|pair| {
            vec![
                Text::plain(&pair.failed.id),
                Text::plain(out.time(&pair.failed.scheduled_at)),
                Text::plain(&pair.run),
                pair.state.as_deref().map_or(Text::plain("-"), state_text),
                Text::plain(match (pair.made, &pair.state) {
                    (true, _) => "created now",
                    (false, Some(_)) => "created before",
                    (false, None) => "would be created",
                }),
                Text::plain(output::first_line(pair.failed.error.as_deref().unwrap_or_default(), 60)),
            ]
        });
        out.table(&["FAILED", "SCHEDULED AT", "NEW RUN", "STATE", "", "ERROR"], rows.collect())?;
        if let Some(next) = &redriven.next_since {
            output::note_line(&format!("there are more; continue with --since {}", out.time(next)));
        }
        Ok(())
    }
}
