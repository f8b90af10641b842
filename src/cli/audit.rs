//! `everytick audit`: lists who changed what on a server.

use clap::Args;
use everytick_domain::instant::{InstantText, Lean};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    fit::{self, Column, Layout, Precision},
    ids::{self, ShortIds},
    job::PageFlags,
    run,
};
use crate::{
    client::Client,
    output::{self, Output, Text},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick audit
  everytick audit --subject nightly --from yesterday
  everytick audit --actor local --action pause
  everytick audit --subject 01a1e327-d180-8de1 -o json | jq '.items[] | {at, actor, action}'

Newest first. Actions are create, edit, pause, resume, delete, trigger, cancel, redrive, backfill, cancel_backfill, cancel_flow,
rerun_flow, set_calendar, delete_calendar, limit, repair, backlog, create_token, rotate_token, revoke_token, require_auth, reset_access and
denied. Rows are kept for --audit-retention of the server.";

/// The least space for the detail of a change, and for its author. Jobs and subjects are not cut, because --subject accepts them.
const DETAIL_MIN: usize = 24;
const ACTOR_MIN: usize = 18;

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// List only changes by this actor
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// List only this action, such as pause
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// List only changes with this result: ok or denied
    #[arg(long, value_name = "RESULT")]
    result: Option<String>,
    /// List only changes of this object: the name of a job, queue or calendar, or an id or the beginning of one
    #[arg(long, value_name = "NAME|ID")]
    subject: Option<String>,
    /// List only changes at this time or later
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: Option<InstantText>,
    /// List only changes before this time
    #[arg(long, visible_alias = "until", value_name = "TIME", allow_hyphen_values = true)]
    to: Option<InstantText>,
    #[command(flatten)]
    page: PageFlags,
}

/// The fields of the API's answer that the table shows.
#[derive(Debug, Deserialize)]
struct Entry {
    at: String,
    actor: String,
    action: String,
    subject: String,
    detail: Box<RawValue>,
}

impl Entry {
    /// The name of the job that was changed, or of the job to which the subject belongs.
    fn job(&self) -> Option<Job> {
        serde_json::from_str(self.detail.get()).ok()
    }
}

/// The fields of a detail that name a job.
#[derive(Debug, Deserialize)]
struct Job {
    /// The subject is the job.
    name: Option<String>,
    /// The subject is a run or a backfill of the job.
    job: Option<String>,
}

fn layout(out: Output, entries: &[Entry], precision: Precision, actor: bool, detail: bool) -> Layout {
    let (zone, times) = fit::times_to(precision, out, entries.iter().map(|entry| entry.at.as_str()));
    let ids = ShortIds::of(entries.iter().map(|entry| entry.subject.as_str()).filter(|text| ids::is_id(text)));
    let job = |entry: &Entry| entry.job().and_then(|job| job.name.or(job.job)).unwrap_or_default();
    let subject = |entry: &Entry| match entry.job() {
        Some(Job { name: Some(_), .. }) => Text::plain(""),
        _ if ids::is_id(&entry.subject) => Text::plain(ids.short(&entry.subject)),
        _ => Text::plain(&entry.subject),
    };
    let mut columns = vec![Column::whole(format!("AT{zone}"), times.iter().map(Text::plain))];
    if actor {
        columns.push(Column::cut("ACTOR", ACTOR_MIN, entries.iter().map(|entry| Text::plain(&entry.actor))));
    }
    columns.push(Column::whole("ACTION", entries.iter().map(|entry| Text::strong(&entry.action))));
    columns.push(Column::whole("JOB", entries.iter().map(|entry| Text::plain(job(entry)))));
    columns.push(Column::whole("SUBJECT", entries.iter().map(subject)));
    if detail {
        let details = entries.iter().map(|entry| Text::plain(entry.detail.get()));
        columns.push(Column::cut("DETAIL", DETAIL_MIN, details));
    }
    Layout::of(columns)
}

impl Audit {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut request = client
            .get(&["audit"])
            .query_some("actor", self.actor)
            .query_some("action", self.action)
            .query_some("result", self.result)
            .query_some("subject", self.subject);
        for (name, text) in [("from", &self.from), ("to", &self.to)] {
            let read = |text| out.times().read(name, text, Lean::Past, None);
            request = request.query_some(name, text.as_ref().map(read).transpose()?);
        }
        let answer = request.list(self.page.limit, self.page.cursor).await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let entries: Vec<Entry> = answer.read()?;
        if entries.is_empty() {
            output::note_line("no changes");
        } else {
            let layouts = [
                (Precision::Seconds, true, true),
                (Precision::Seconds, true, false),
                (Precision::Minutes, true, false),
                (Precision::Minutes, false, false),
            ];
            fit::first_that_fits(out, layouts.map(|(at, actor, detail)| layout(out, &entries, at, actor, detail)))?;
        }
        run::note_more(&answer);
        Ok(())
    }
}
