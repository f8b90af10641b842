//! `everytick cluster`: shows the nodes that share the database, their leases and their partitions.

use clap::Args;
use everytick_domain::time::{DbTime, Span};
use serde::Deserialize;

use super::fit;
use crate::{
    client::Client,
    output::{self, Output, Text, Tone},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick cluster
  everytick cluster -o json | jq '.nodes[] | {name, partitions, lag_ms}'

Any node can answer. CAN is what the settings of a node allow besides webhooks to public addresses and queues. JOBS are the
jobs with a next tick in its partitions. A node that stopped or lost its lease is shown for a day;
`gone since` is the last renewal of its lease. LAG is the longest time from due to dispatch of a run between the node's last two lease renewals.
CLOCK is the offset of the node's clock from the database clock. Only the database clock decides what is due.";

/// A node with this many roles has all of them.
const ROLES: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct Cluster {}

#[derive(Debug, Deserialize)]
struct View {
    now: DbTime,
    leader: Option<String>,
    differences: Option<String>,
    /// The next three are missing in the answer of a server of the previous release.
    row_level_security: Option<String>,
    #[serde(default)]
    unreadable_rows: u64,
    #[serde(default)]
    unreadable: Vec<Unreadable>,
    nodes: Vec<Node>,
    #[serde(default)]
    gone: Vec<Gone>,
    partitions: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
struct Gone {
    name: String,
    version: String,
    roles: Option<Vec<String>>,
    capabilities: Option<Capabilities>,
    gone_since: DbTime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    shell: bool,
    webhook_ranges: Vec<String>,
    kinds: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Node {
    name: String,
    region: Option<String>,
    version: String,
    state: String,
    holds: bool,
    partitions: usize,
    /// The next three are missing in the answer of a server of the previous release.
    jobs: Option<u64>,
    roles: Option<Vec<String>>,
    capabilities: Option<Capabilities>,
    started_at: DbTime,
    lag_ms: u64,
    clock_offset_ms: i64,
}

#[derive(Debug, Deserialize)]
struct Unreadable {
    table: String,
    key: String,
    error: String,
}

#[derive(Debug, Deserialize)]
struct Partition {
    node: Option<String>,
}

impl Cluster {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let answer = client.get(&["cluster"]).send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let view: View = answer.read()?;
        let rows = view.nodes.iter().map(|node| row(node, &view)).collect();
        let header = ["NODE", "STATE", "ROLES", "CAN", "JOBS", "PARTS", "LAG", "CLOCK", "UP", "VERSION", "REGION"];
        fit::table(out, &header, rows, &[(2, 0), (3, 0), (10, 0)])?;
        for gone in &view.gone {
            out.line(&gone.line(out, view.now))?;
        }
        let unowned = view.partitions.iter().filter(|partition| partition.node.is_none()).count();
        let mut summary = match view.partitions.len() {
            1 => "\n1 partition".to_owned(),
            count => format!("\n{count} partitions"),
        };
        if unowned > 0 {
            summary += &format!(", {unowned} of them without an owner");
        }
        match &view.leader {
            Some(leader) => summary += &format!("; leader: {leader}"),
            None => summary += "; no leader",
        }
        // A file has one partition, and nothing separates its tenants but the server.
        if let Some(security) = view.row_level_security.as_ref().filter(|_| view.partitions.len() > 1) {
            summary += &format!("; row-level security: {security}");
        }
        out.line(&summary)?;
        if let Some(differences) = &view.differences {
            out.line(&format!(
                "warning: the nodes differ in what they can deliver ({differences}); start all of them with the same \
                 --enable-shell and --allow-webhook-range"
            ))?;
        }
        if view.unreadable_rows > 0 {
            out.line(&format!(
                "warning: {} stored rows cannot be decoded and are skipped (table unreadable); the latest ones:",
                view.unreadable_rows
            ))?;
            for row in &view.unreadable {
                out.line(&format!("  {} {}: {}", row.table, row.key, row.error))?;
            }
        }
        Ok(())
    }
}

impl Gone {
    fn line(&self, out: Output, now: DbTime) -> String {
        let (name, ago) = (&self.name, up(self.gone_since, now));
        let (_, since) = fit::short_times(out, [self.gone_since.to_string().as_str()]);
        let (roles, can) = (roles(self.roles.as_deref()), can(self.capabilities.as_ref()));
        let line =
            format!("{name}  gone since {}, {ago} ago; roles {roles}, can {can}, {}", since.concat(), self.version);
        output::first_line(&line, out.columns().max(fit::WIDTH_MIN))
    }
}

fn roles(roles: Option<&[String]>) -> String {
    match roles {
        None => "?".to_owned(),
        Some(roles) if roles.len() == ROLES => "all".to_owned(),
        Some(roles) => roles.join(","),
    }
}

/// What a node can deliver besides webhooks to public addresses and queues.
fn can(capabilities: Option<&Capabilities>) -> String {
    let Some(can) = capabilities else { return "?".to_owned() };
    let shell = can.shell.then(|| "shell".to_owned());
    let all: Vec<String> = shell.iter().chain(&can.kinds).chain(&can.webhook_ranges).cloned().collect();
    if all.is_empty() { "-".to_owned() } else { all.join(",") }
}

fn row(node: &Node, view: &View) -> Vec<Text> {
    let live = node.state == "live";
    let state = match (live, node.holds) {
        (true, true) => Text::new("live", Tone::Good),
        (true, false) => Text::new("live", Tone::Quiet),
        (false, _) => Text::new(&*node.state, Tone::Bad),
    };
    let sign = if node.clock_offset_ms > 0 { "-" } else { "+" };
    let clock = Span::millis(node.clock_offset_ms.unsigned_abs());
    vec![
        Text::plain(&*node.name),
        state,
        Text::plain(roles(node.roles.as_deref())),
        Text::plain(can(node.capabilities.as_ref())),
        Text::number(node.jobs.map(|jobs| jobs.to_string()).unwrap_or_default()),
        Text::number(node.partitions.to_string()),
        Text::number(format!("{}ms", node.lag_ms)),
        Text::number(if clock.is_zero() { clock.to_string() } else { format!("{sign}{clock}") }),
        Text::number(up(node.started_at, view.now)),
        Text::plain(&*node.version),
        Text::plain(node.region.as_deref().unwrap_or("")),
    ]
}

/// The uptime, in whole seconds during the first hour and in whole minutes after it.
fn up(since: DbTime, now: DbTime) -> String {
    let millis = now.since(since).as_millis();
    let unit = if millis < 3_600_000 { 1_000 } else { 60_000 };
    Span::millis(millis / unit * unit).to_string()
}
