//! `everytick audit`: lists who changed what on a server, or exports all of it.

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use everytick_domain::instant::{InstantText, Lean};
use futures::{StreamExt as _, pin_mut};
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
    failure,
    output::{self, Output, Text},
};

const EXPORT_HELP: &str = "\
Examples:
  everytick audit export > audit.ndjson
  everytick audit export --after 1200
  everytick audit export --follow >> audit.ndjson

Each line is the JSON object of one row. With --follow, the command waits for new rows. It continues after a restart of the server
and misses no row. To continue after a restart of the command, pass the id of the last line with --after.";

/// How often new rows are requested, and the pause after an error.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick audit
  everytick audit --subject nightly --from yesterday
  everytick audit --actor local --action pause
  everytick audit --result failed
  everytick audit --subject 01a1e327-d180-8de1 -o json | jq '.items[] | {at, actor, action}'

Newest first. Actions are create, edit, pause, resume, delete, trigger, cancel, redrive, backfill, cancel_backfill, cancel_flow,
rerun_flow, set_calendar, delete_calendar, limit, repair, backlog, create_token, rotate_token, revoke_token, require_auth, reset_access,
set_secret, rotate_secret, delete_secret, rekey_secrets, forget_key, denied and failed. Rows are kept for --audit-retention of the server.";

/// The actions, for hints. A server of a later release can have more.
const ACTIONS: [&str; 29] = [
    "create",
    "edit",
    "pause",
    "resume",
    "delete",
    "trigger",
    "cancel",
    "redrive",
    "backfill",
    "cancel_backfill",
    "cancel_flow",
    "rerun_flow",
    "set_calendar",
    "delete_calendar",
    "limit",
    "repair",
    "backlog",
    "create_token",
    "rotate_token",
    "revoke_token",
    "require_auth",
    "reset_access",
    "set_secret",
    "rotate_secret",
    "delete_secret",
    "rekey_secrets",
    "forget_key",
    "denied",
    "failed",
];

/// The least space for the detail of a change, and for its author. Jobs and subjects are not cut, because --subject accepts them.
const DETAIL_MIN: usize = 24;
const ACTOR_WANTED: usize = 18;
const ACTOR_MIN: usize = 8;
/// The detail of these names a token, not a job.
const TOKEN_ACTIONS: [&str; 3] = ["create_token", "rotate_token", "revoke_token"];

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// List who changed what, newest first
    #[command(after_help = AFTER_HELP)]
    List(Box<List>),
    /// Print every row, oldest first, as one line of JSON each
    #[command(after_help = EXPORT_HELP)]
    Export(Export),
}

#[derive(Debug, Args)]
struct Export {
    /// Begin after the row with this id
    #[arg(long, value_name = "ID", default_value_t = 0)]
    after: u64,
    /// Print new rows too, until the command is stopped
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Args)]
struct List {
    /// List only changes by this actor
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// List only this action, such as pause
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// List only changes with this result: ok, denied or failed
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
    fn names(&self) -> Names {
        serde_json::from_str(self.detail.get()).unwrap_or_default()
    }

    /// The name of the job that was changed, or of the job to which the subject belongs.
    fn job(&self) -> Option<String> {
        let names = self.names();
        if self.is_token() { None } else { names.name.or(names.job) }
    }

    fn is_token(&self) -> bool {
        TOKEN_ACTIONS.contains(&self.action.as_str())
    }

    /// What was changed, unless it is the job itself.
    fn subject(&self, ids: &ShortIds) -> String {
        match self.names().name {
            Some(name) if self.is_token() => name,
            Some(_) => String::new(),
            None if ids::is_id(&self.subject) => ids.short(&self.subject).to_owned(),
            None => self.subject.clone(),
        }
    }
}

/// The fields of a detail that are names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Names {
    /// The subject has this name.
    name: Option<String>,
    /// The subject is a run or a backfill of this job.
    job: Option<String>,
}

/// What a table shows.
#[derive(Clone, Copy, Debug)]
struct Shown {
    precision: Precision,
    /// The least space for the author of a change; `None` leaves it out.
    actor_min: Option<usize>,
    detail: bool,
    /// One column names the job, or a subject without a job. Otherwise the job and the subject have a column each.
    one_subject: bool,
}

/// Layouts, the widest first. The author of a change is more useful than the run or backfill of a job.
const LAYOUTS: [Shown; 6] = {
    let all = Shown { precision: Precision::Seconds, actor_min: Some(ACTOR_WANTED), detail: true, one_subject: false };
    let no_detail = Shown { detail: false, ..all };
    let minutes = Shown { precision: Precision::Minutes, ..no_detail };
    let one_subject = Shown { one_subject: true, ..minutes };
    let narrow = Shown { actor_min: Some(ACTOR_MIN), ..one_subject };
    [all, no_detail, minutes, one_subject, narrow, Shown { actor_min: None, ..narrow }]
};

fn layout(out: Output, entries: &[Entry], shown: Shown) -> Layout {
    let (zone, times) = fit::times_to(shown.precision, out, entries.iter().map(|entry| entry.at.as_str()));
    let ids = ShortIds::of(entries.iter().map(|entry| entry.subject.as_str()).filter(|text| ids::is_id(text)));
    let mut columns = vec![Column::whole(format!("AT{zone}"), times.iter().map(Text::plain))];
    if let Some(min) = shown.actor_min {
        columns.push(Column::cut("ACTOR", min, entries.iter().map(|entry| Text::plain(&entry.actor))));
    }
    columns.push(Column::whole("ACTION", entries.iter().map(|entry| Text::strong(&entry.action))));
    if shown.one_subject {
        let subjects = entries.iter().map(|entry| Text::plain(entry.job().unwrap_or_else(|| entry.subject(&ids))));
        columns.push(Column::whole("SUBJECT", subjects));
    } else {
        columns.push(Column::whole("JOB", entries.iter().map(|entry| Text::plain(entry.job().unwrap_or_default()))));
        columns.push(Column::whole("SUBJECT", entries.iter().map(|entry| Text::plain(entry.subject(&ids)))));
    }
    if shown.detail {
        let details = entries.iter().map(|entry| Text::plain(entry.detail.get()));
        columns.push(Column::cut("DETAIL", DETAIL_MIN, details));
    }
    Layout::of(columns)
}

impl Audit {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self.command {
            Some(AuditCommand::Export(export)) => export.run(client, out).await,
            Some(AuditCommand::List(list)) => list.run(client, out).await,
            None => self.list.run(client, out).await,
        }
    }
}

impl Export {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut position = Position { after: self.after, begun: Vec::new() };
        // A wrong address ends the command. Later, the server may be restarting.
        let (mut connected, mut in_trouble) = (false, false);
        loop {
            match position.print_rows(client, out).await {
                Ok(()) if !self.follow => return Ok(()),
                Ok(()) => (connected, in_trouble) = (true, false),
                Err(error) if self.follow && connected && failure::is_temporary(&error) => {
                    if !in_trouble {
                        output::note_line(&format!("{error}; trying again"));
                    }
                    in_trouble = true;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
}

/// The last row that was printed.
struct Position {
    after: u64,
    /// The beginning of the next line.
    begun: Vec<u8>,
}

#[derive(Deserialize)]
struct Row {
    id: u64,
}

impl Position {
    /// Prints the rows that follow. A line that was cut off by an error is requested again.
    async fn print_rows(&mut self, client: &Client, out: Output) -> anyhow::Result<()> {
        self.begun.clear();
        let request = client.get(&["audit"]).query("format", "ndjson").query("after", self.after);
        let (_, chunks) = request.stream("application/x-ndjson").await?;
        pin_mut!(chunks);
        while let Some(chunk) = chunks.next().await {
            self.print(&chunk?, out)?;
        }
        Ok(())
    }

    fn print(&mut self, chunk: &[u8], out: Output) -> anyhow::Result<()> {
        self.begun.extend_from_slice(chunk);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.begun.split_off(end + 1);
        let lines = std::mem::replace(&mut self.begun, rest);
        let last = lines.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
        let last = last.map(serde_json::from_slice::<Row>).transpose();
        let last = last.context("could not decode the server's answer; is the server another release?")?;
        out.part(&lines, &mut Vec::new())?;
        self.after = last.map_or(self.after, |row| row.id);
        Ok(())
    }
}

impl List {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let action = self.action;
        let mut request = client
            .get(&["audit"])
            .query_some("actor", self.actor)
            .query_some("action", action.as_deref())
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
            let hint = action.filter(|action| !ACTIONS.contains(&action.as_str()));
            let hint = hint.map(|action| format!("; {action:?} is not an action: write one of {}", ACTIONS.join(", ")));
            output::note_line(&format!("no changes{}", hint.unwrap_or_default()));
        } else {
            fit::first_that_fits(out, LAYOUTS.map(|shown| layout(out, &entries, shown)))?;
        }
        run::note_more(&answer);
        Ok(())
    }
}
