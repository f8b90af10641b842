//! `everytick run redrive`: the failed runs of a job once more, the way out of the dead-letter list.

use clap::Args;
use everytick_domain::time::DbTime;
use serde::Deserialize;
use serde_json::json;

use super::{
    job::job_ref,
    run::{RunView, state_text},
};
use crate::{
    client::Client,
    output::{self, Output, Text},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick run redrive --job nightly --since 2026-11-16T00:00:00Z --dry-run
  everytick run redrive --job nightly --since 2026-11-16T00:00:00Z
  everytick run list --job nightly --status failed

Each failed run gets one new run in its place, for the same instant and with the same payload; the failed one stays as it
is. Asking again makes nothing twice: it shows how the new runs stand; one of
them that failed is driven again itself.";

#[derive(Debug, Args)]
pub(crate) struct Redrive {
    /// The job whose failed runs are done again
    #[arg(long, value_name = "JOB", value_parser = job_ref)]
    job: String,
    /// Failed runs scheduled at this instant or later; at most 7 days back
    #[arg(long, value_name = "INSTANT")]
    since: DbTime,
    /// Failed runs scheduled at this instant or earlier
    #[arg(long, value_name = "INSTANT")]
    until: Option<DbTime>,
    /// How many at the most, the oldest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    /// Only show what would be done
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
        let body = json!({
            "since": self.since.to_string(), "until": self.until.map(|at| at.to_string()),
            "limit": self.limit, "dry_run": self.dry_run,
        });
        let answer = client.post(&["jobs", &self.job, "redrive"]).json(&body)?.send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let redriven: Redriven = answer.read()?;
        if redriven.items.is_empty() {
            output::note_line("no failed runs");
            return Ok(());
        }
        let rows = redriven.items.iter().map(|pair| {
            vec![
                Text::plain(&pair.failed.id),
                Text::plain(&pair.failed.scheduled_at),
                Text::plain(&pair.run),
                pair.state.as_deref().map_or(Text::plain("-"), state_text),
                Text::plain(match (pair.made, &pair.state) {
                    (true, _) => "made now",
                    (false, Some(_)) => "made before",
                    (false, None) => "would be made",
                }),
                Text::plain(output::first_line(pair.failed.error.as_deref().unwrap_or_default(), 60)),
            ]
        });
        out.table(&["FAILED", "SCHEDULED AT", "NEW RUN", "STATE", "", "ERROR"], rows.collect())?;
        if let Some(next) = &redriven.next_since {
            output::note_line(&format!("there are more; go on with --since {next}"));
        }
        Ok(())
    }
}
