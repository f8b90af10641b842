//! `everytick flow`: draws and cancels flows on a server, and repeats them from the failed jobs.

use clap::{Args, Subcommand};
use everytick_domain::{
    flow::FlowState,
    instant::{InstantText, Lean},
    time::DbTime,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    fit,
    flow_graph::{NodeView, tree},
    ids::{self, ShortIds},
    job::PageFlags,
    run::{note_more, state_text, took},
};
use crate::{
    client::{Answer, Client},
    output::{self, Output, Text, Tone},
};

/// The least space for the name of the root in a list.
const ROOT_MIN: usize = 8;

const LIST_HELP: &str = "\
Examples:
  everytick flow list
  everytick flow list --status running,failed --from yesterday
  everytick flow list -o json | jq -r '.items[].id'";

const GET_HELP: &str = "\
Examples:
  everytick flow get 01a1e327-d180-8de1-92e3-d388a74d8fe4
  everytick flow get $(everytick run list --job extract --limit 1 -o json | jq -r '.items[0].flow')

The id of a flow is the id of the run that opened it. The command also works while that run is in progress.";

const CANCEL_HELP: &str = "\
Examples:
  everytick flow cancel 01a1e327-d180-8de1-92e3-d388a74d8fe4

Cancels each open run of the flow, as `run cancel` does. The flow starts no more runs.
A flow that has ended cannot be cancelled (exit 4).";

const RERUN_HELP: &str = "\
Examples:
  everytick flow rerun 01a1e327-d180-8de1-92e3-d388a74d8fe4
  everytick flow rerun 01a1e327-d180-8de1-92e3-d388a74d8fe4 --from load

Creates one new flow from the jobs that failed or were cancelled and all jobs that follow them.
The other jobs keep their results and are not repeated.";

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// List flows, newest first
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Draw a flow as a tree of its jobs, with the state and the error of each
    #[command(after_help = GET_HELP)]
    Get(One),
    /// Cancel all runs of a flow that wait or are in progress
    #[command(after_help = CANCEL_HELP)]
    Cancel(One),
    /// Repeat a flow from the failed jobs
    #[command(after_help = RERUN_HELP)]
    Rerun(Rerun),
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The flow's id, or a beginning of it that no other flow has
    #[arg(value_name = "FLOW", value_parser = ids::id)]
    flow: String,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List only flows in this state: running, succeeded, failed or cancelled; repeatable
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = state)]
    status: Vec<String>,
    /// List only flows of this time or later
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: Option<InstantText>,
    /// List only flows before this time
    #[arg(long, visible_alias = "until", value_name = "TIME", allow_hyphen_values = true)]
    to: Option<InstantText>,
    #[command(flatten)]
    page: PageFlags,
}

fn state(text: &str) -> Result<String, String> {
    let words: Vec<&str> = FlowState::ALL.iter().map(|state| state.word()).collect();
    match FlowState::from_word(text) {
        Some(state) => Ok(state.word().to_owned()),
        None => Err(format!("{text:?} is not a state of a flow; write one of {}", words.join(", "))),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Rerun {
    #[command(flatten)]
    one: One,
    /// Start from this job of the flow; repeatable [default: each job that failed or was cancelled]
    #[arg(long, value_name = "JOB")]
    from: Vec<String>,
    /// Create only one flow, even if the request is repeated with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// The fields of the API's answer that the command shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FlowView {
    id: String,
    root: Option<String>,
    state: String,
    opened_at: String,
    scheduled_at: String,
    rerun_of: Option<String>,
    nodes: Vec<NodeView>,
}

impl FlowCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(client, out).await,
            Self::Get(One { flow }) => print(out, &client.get(&["flows", &flow]).send().await?),
            Self::Cancel(One { flow }) => {
                let answer = client.post(&["flows", &flow, "cancel"]).send().await?;
                if out.is_json() {
                    return Ok(out.json(&answer)?);
                }
                let cancelled: Cancelled = answer.read()?;
                let flow = cancelled.flow.id;
                Ok(out.line(&format!("{flow} cancelled; runs cancelled with it: {}", cancelled.cancelled.len()))?)
            }
            Self::Rerun(Rerun { one: One { flow }, from, idempotency_key }) => {
                let request = client.post(&["flows", &flow, "rerun"]);
                let request = request.header_some("idempotency-key", idempotency_key);
                let body = if from.is_empty() { json!({}) } else { json!({ "from": from }) };
                print(out, &request.json(&body)?.send().await?)
            }
        }
    }
}

/// The fields of an item of the API's list that the table shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Summary {
    id: String,
    root: Option<String>,
    state: String,
    scheduled_at: String,
    rerun_of: Option<String>,
    jobs: u64,
    ended: u64,
    failed: u64,
}

impl List {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut request = client.get(&["flows"]);
        for state in &self.status {
            request = request.query("status", state);
        }
        for (name, text) in [("from", &self.from), ("to", &self.to)] {
            let read = |text| out.times().read(name, text, Lean::Past, None);
            request = request.query_some(name, text.as_ref().map(read).transpose()?);
        }
        let answer = request.list(self.page.limit, self.page.cursor).await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let flows: Vec<Summary> = answer.read()?;
        if flows.is_empty() {
            output::note_line("no flows");
        } else {
            let ids = ShortIds::of(flows.iter().map(|flow| flow.id.as_str()));
            let (zone, times) = fit::short_times(out, flows.iter().map(|flow| flow.scheduled_at.as_str()));
            let row = |(flow, at): (&Summary, String)| {
                let rerun = flow.rerun_of.as_ref().map(|of| format!("rerun of {}", ids.short(of)));
                vec![
                    Text::plain(ids.short(&flow.id)),
                    Text::strong(flow.root.clone().or(rerun).unwrap_or_default()),
                    flow_state(&flow.state),
                    Text::plain(at),
                    Text::number(format!("{}/{}", flow.ended, flow.jobs)),
                    Text::number(flow.failed.to_string()),
                ]
            };
            let scheduled = format!("SCHEDULED{zone}");
            let header = ["FLOW", "ROOT", "STATE", &scheduled, "ENDED", "FAILED"];
            fit::table(out, &header, flows.iter().zip(times).map(row).collect(), &[(1, ROOT_MIN)])?;
        }
        note_more(&answer);
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cancelled {
    flow: FlowView,
    cancelled: Vec<String>,
}

fn print(out: Output, answer: &Answer) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let flow: FlowView = answer.read()?;
    out.facts(vec![
        ("Flow", Text::plain(&*flow.id)),
        ("State", flow_state(&flow.state)),
        ("Root", Text::plain(flow.root.unwrap_or_default())),
        ("Rerun of", Text::plain(flow.rerun_of.unwrap_or_default())),
        ("Scheduled at", Text::plain(out.time(&flow.scheduled_at))),
        ("Opened at", Text::plain(out.time(&flow.opened_at))),
    ])?;
    out.line("")?;
    let ids = ShortIds::of(flow.nodes.iter().filter_map(|node| node.run.as_deref()));
    let row = |(branch, node): (String, &NodeView)| {
        let state = match &node.state {
            Some(state) => match &node.skip_reason {
                Some(reason) => state_text(state).and(&format!(" ({reason})")),
                None => state_text(state),
            },
            None => Text::new("pending", Tone::Quiet),
        };
        let why = node.error.as_deref().map(|error| output::first_line(error, WHY_CHARS_MAX));
        let notes: Vec<String> = [node.waits_for()].into_iter().chain(why).filter(|note| !note.is_empty()).collect();
        vec![
            Text::plain(format!("{branch}{}", node.job)),
            state,
            Text::plain(node.run.as_deref().map(|run| ids.short(run)).unwrap_or_default()),
            Text::number(took(millis(node))),
            Text::plain(notes.join("; ")),
        ]
    };
    out.table(&["JOB", "STATE", "RUN", "TOOK", "NOTE"], tree(&flow.nodes).into_iter().map(row).collect())?;
    Ok(())
}

const WHY_CHARS_MAX: usize = 120;

fn millis(node: &NodeView) -> Option<u64> {
    let instant = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<DbTime>().ok());
    Some(instant(&node.finished_at)?.since(instant(&node.started_at)?).as_millis())
}

fn flow_state(state: &str) -> Text {
    let tone = match state {
        "succeeded" => Tone::Good,
        "failed" => Tone::Bad,
        "running" => Tone::Busy,
        _ => Tone::Quiet,
    };
    Text::new(state, tone)
}
