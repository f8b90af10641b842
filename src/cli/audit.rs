//! `everytick audit`: lists who changed what on a server.

use clap::Args;
use everytick_domain::instant::{InstantText, Lean};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{job::PageFlags, run};
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

/// How much of the detail of a change the table shows.
const DETAIL_CHARS_MAX: usize = 80;

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
            let row = |entry: &Entry| {
                vec![
                    Text::plain(out.time(&entry.at)),
                    Text::plain(&entry.actor),
                    Text::strong(&entry.action),
                    Text::plain(&entry.subject),
                    Text::plain(output::first_line(entry.detail.get(), DETAIL_CHARS_MAX)),
                ]
            };
            out.table(&["AT", "ACTOR", "ACTION", "SUBJECT", "DETAIL"], entries.iter().map(row).collect())?;
        }
        run::note_more(&answer);
        Ok(())
    }
}
