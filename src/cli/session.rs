//! `everytick session`: lists and ends the sessions of browsers.

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::{
    fit::{self, Column, Layout, Precision},
    ids::{self, ShortIds},
};
use crate::{
    client::Client,
    failure::{Exit, Failure},
    output::{self, Output, Text},
};

const LIST_HELP: &str = "\
Examples:
  everytick session list
  everytick session list -o json | jq -r '.items[] | [.user, .last_used_at] | @tsv'";

const REVOKE_HELP: &str = "\
Examples:
  everytick session revoke 01a1e327-d180-7de1-8000-000000000000
  everytick session revoke user:ann@example.org

Ends the session, or all sessions of the user. Takes effect on all nodes within 5 s. The user may log in again; to prevent
that, also revoke its token.";

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions of browsers
    #[command(after_help = LIST_HELP)]
    List(List),
    /// End sessions
    #[command(after_help = REVOKE_HELP)]
    Revoke(Revoke),
}

impl SessionCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::List(_) => list(client, out).await,
            Self::Revoke(revoke) => revoke.run(client, out).await,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct List {}

/// The fields of a session that the table shows.
#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    user: String,
    grants: Vec<Granted>,
    last_used_at: String,
    last_used_ip: Option<String>,
    expires_at: String,
}

#[derive(Debug, Deserialize)]
struct Granted {
    tenant: Option<String>,
    role: String,
}

impl Listed {
    fn grants(&self) -> String {
        let each = self.grants.iter().map(|grant| match &grant.tenant {
            Some(tenant) => format!("{tenant}: {}", grant.role),
            None => grant.role.clone(),
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

const SESSIONS_MAX: usize = 10_000;
/// A tenant and a role: `default: operator`.
const GRANTS_MIN: usize = 17;

async fn list(client: &Client, out: Output) -> anyhow::Result<()> {
    let page = client.get(&["sessions"]).list(SESSIONS_MAX, None).await?;
    if out.is_json() {
        return Ok(out.json(&page)?);
    }
    print_sessions(out, &page.read::<Listed>()?)
}

fn print_sessions(out: Output, sessions: &[Listed]) -> anyhow::Result<()> {
    let ids = ShortIds::of(sessions.iter().map(|session| session.id.as_str()));
    let used = || sessions.iter().map(|session| session.last_used_at.as_str());
    let expires = || sessions.iter().map(|session| session.expires_at.as_str());
    let layout = |precision: Precision, with_address: bool| {
        let ((zone, used), (_, expires)) =
            (fit::times_to(precision, out, used()), fit::times_to(precision, out, expires()));
        let mut columns = vec![
            Column::whole("USER", sessions.iter().map(|session| Text::strong(&session.user))),
            Column::cut("GRANTS", GRANTS_MIN, sessions.iter().map(|session| Text::plain(session.grants()))).kept(),
            Column::whole(format!("USED{zone}"), used.iter().map(Text::plain)).kept(),
        ];
        if with_address {
            let addresses = sessions.iter().map(|session| session.last_used_ip.as_deref().unwrap_or_default());
            columns.push(Column::whole("FROM", addresses.map(Text::plain)).kept());
        }
        columns.push(Column::whole("EXPIRES", expires.iter().map(Text::plain)).kept());
        columns.push(Column::whole("ID", sessions.iter().map(|session| Text::plain(ids.short(&session.id)))));
        Layout::of(columns)
    };
    let layouts =
        [layout(Precision::Seconds, true), layout(Precision::Minutes, true), layout(Precision::Minutes, false)];
    fit::first_that_fits(out, layouts)
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The id of the session, a beginning of it, or the user whose sessions end
    #[arg(value_name = "ID|USER")]
    session: String,
}

impl Revoke {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let all = client.get(&["sessions"]).list(SESSIONS_MAX, None).await?.read::<Listed>()?;
        for session in named(all, &self.session)? {
            let answer = client.delete(&["sessions", &session.id]).send().await?;
            if out.is_json() {
                out.json(&answer)?;
            } else {
                output::note_line(&format!("ended a session of {}", session.user));
            }
        }
        Ok(())
    }
}

/// The sessions with this user, this id, or this beginning of an id.
fn named(all: Vec<Listed>, text: &str) -> anyhow::Result<Vec<Listed>> {
    let (named, others): (Vec<Listed>, Vec<Listed>) =
        all.into_iter().partition(|session| session.id == text || session.user == text);
    if !named.is_empty() {
        return Ok(named);
    }
    let by_beginning: Vec<Listed> = match ids::id(text) {
        Ok(_) => others.into_iter().filter(|session| session.id.starts_with(text)).collect(),
        Err(_) => Vec::new(),
    };
    match by_beginning.len() {
        0 => {
            let message = format!("no session has the id or the user {text:?}; `everytick session list` lists them");
            Err(Failure::new(Exit::NotFound, message).into())
        }
        1 => Ok(by_beginning),
        _ => {
            let message = format!("{text:?} is the beginning of the ids of several sessions; write more of the id");
            Err(Failure::new(Exit::Conflict, message).into())
        }
    }
}
