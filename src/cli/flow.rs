//! Flows on a server: drawn, stopped, repeated from what failed.

use clap::{Args, Subcommand};
use everytick_domain::{ids::RunId, time::DbTime};
use serde::Deserialize;
use serde_json::json;

use super::{
    flow_graph::{NodeView, tree},
    run::{state_text, took},
};
use crate::{
    client::{Answer, Client},
    output::{self, Output, Text, Tone},
};

const GET_HELP: &str = "\
Examples:
  everytick flow get 01a1e327-d180-8de1-92e3-d388a74d8fe4
  everytick flow get $(everytick run list --job extract --limit 1 -o json | jq -r '.items[0].flow')

A flow has the id of the run that opened it. It can be looked at while that run goes on, too.";

const CANCEL_HELP: &str = "\
Examples:
  everytick flow cancel 01a1e327-d180-8de1-92e3-d388a74d8fe4

What is open of it is stopped, as `run cancel` does, and it starts nothing more.";

const RERUN_HELP: &str = "\
Examples:
  everytick flow rerun 01a1e327-d180-8de1-92e3-d388a74d8fe4
  everytick flow rerun 01a1e327-d180-8de1-92e3-d388a74d8fe4 --from load

One new flow is made, of what failed or was cancelled and of all that follows. What had ended before counts as it ended.";

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Draw a flow: each job, how it stands, and why
    #[command(after_help = GET_HELP)]
    Get(One),
    /// Stop all of a flow that waits or is in progress
    #[command(after_help = CANCEL_HELP)]
    Cancel(One),
    /// Do a flow once more from what failed
    #[command(after_help = RERUN_HELP)]
    Rerun(Rerun),
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The flow's id
    #[arg(value_name = "FLOW")]
    flow: RunId,
}

#[derive(Debug, Args)]
pub(crate) struct Rerun {
    #[command(flatten)]
    one: One,
    /// Begin at this job of the flow; may be repeated [default: every one that failed or was cancelled]
    #[arg(long, value_name = "JOB")]
    from: Vec<String>,
    /// Repeating the request under the same key makes one flow
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// As the API answers it, as far as it is shown.
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
            Self::Get(One { flow }) => print(out, &client.get(&["flows", &flow.to_string()]).send().await?),
            Self::Cancel(One { flow }) => {
                let answer = client.post(&["flows", &flow.to_string(), "cancel"]).send().await?;
                if out.is_json() {
                    return Ok(out.json(&answer)?);
                }
                let cancelled: Cancelled = answer.read()?;
                Ok(out.line(&format!("{flow} cancelled, with {} of its runs", cancelled.cancelled.len()))?)
            }
            Self::Rerun(Rerun { one: One { flow }, from, idempotency_key }) => {
                let request = client.post(&["flows", &flow.to_string(), "rerun"]);
                let request = request.header_some("idempotency-key", idempotency_key);
                let body = if from.is_empty() { json!({}) } else { json!({ "from": from }) };
                print(out, &request.json(&body)?.send().await?)
            }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cancelled {
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
        ("Scheduled at", Text::plain(&*flow.scheduled_at)),
        ("Opened at", Text::plain(&*flow.opened_at)),
    ])?;
    out.line("")?;
    let row = |(branch, node): (String, &NodeView)| {
        let state = match &node.state {
            Some(state) => match &node.skip_reason {
                Some(reason) => state_text(state).and(&format!(" ({reason})")),
                None => state_text(state),
            },
            None => Text::new("to come", Tone::Quiet),
        };
        let why = node.error.as_deref().map(|error| output::first_line(error, WHY_CHARS_MAX));
        let notes: Vec<String> = [node.waits_for()].into_iter().chain(why).filter(|note| !note.is_empty()).collect();
        vec![
            Text::plain(format!("{branch}{}", node.job)),
            state,
            Text::plain(node.run.clone().unwrap_or_default()),
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
