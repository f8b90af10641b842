//! `everytick audit`: lists who changed what on a server.

use clap::Args;
use everytick_domain::instant::{InstantText, Lean};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    fit,
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
rerun_flow, set_calendar, delete_calendar, limit, repair and backlog. Rows are kept for --audit-retention of the server.";

/// The least space for an actor or a subject, and for the detail of a change. A short id is not cut.
const NAME_MIN: usize = 18;
const DETAIL_MIN: usize = 6;

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// List only changes by this actor
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// List only this action, such as pause
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
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

impl Audit {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut request = client
            .get(&["audit"])
            .query_some("actor", self.actor)
            .query_some("action", self.action)
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
            let (zone, times) = fit::short_times(out, entries.iter().map(|entry| entry.at.as_str()));
            let ids = ShortIds::of(entries.iter().map(|entry| entry.subject.as_str()).filter(|text| ids::is_id(text)));
            let subject = |text: &str| if ids::is_id(text) { ids.short(text).to_owned() } else { text.to_owned() };
            let row = |(entry, at): (&Entry, String)| {
                vec![
                    Text::plain(at),
                    Text::plain(&entry.actor),
                    Text::strong(&entry.action),
                    Text::plain(subject(&entry.subject)),
                    Text::plain(entry.detail.get()),
                ]
            };
            let (at, cuts) = (format!("AT{zone}"), [(1, NAME_MIN), (3, NAME_MIN), (4, DETAIL_MIN)]);
            let header = [&*at, "ACTOR", "ACTION", "SUBJECT", "DETAIL"];
            fit::table(out, &header, entries.iter().zip(times).map(row).collect(), &cuts)?;
        }
        run::note_more(&answer);
        Ok(())
    }
}
