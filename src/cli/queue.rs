//! `everytick queue`: lists the queues that workers claim from, and sets their limits.

use clap::{Args, Subcommand};
use everytick_domain::{queue::Rate, time::DbTime};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fit;
use crate::{
    client::{Answer, Client},
    failure::{self, Failure},
    output::{Output, Text},
};

/// Default of `--limit`. `-o json` shows the cursor of the next page.
const LIST_DEFAULT: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues with their depth and limits
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Show one queue
    #[command(after_help = GET_HELP)]
    Get(Get),
    /// Set or remove the limits of a queue
    #[command(after_help = SET_HELP)]
    Set(Set),
}

const LIST_HELP: &str = "\
Examples:
  everytick queue list
  everytick queue list -o json | jq '.items[] | select(.depth > 500)'

A queue exists when a job has it as its target, or when it has limits.";
const GET_HELP: &str = "\
Examples:
  everytick queue get emails";
const SET_HELP: &str = "\
Examples:
  everytick queue set emails --concurrency 20 --rate 100/1m
  everytick queue set emails --no-rate

Limits without a flag do not change.";

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = LIST_DEFAULT, value_parser = super::number::within::<usize>(1..=i64::MAX))]
    limit: usize,
    /// Continue from the next_cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The queue's name
    queue: String,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The queue's name
    queue: String,
    /// Let workers have at most this many runs in progress
    #[arg(long, value_name = "N", value_parser = super::number::whole::<u32>(1..=100_000))]
    concurrency: Option<u32>,
    /// Let workers claim at most this many runs per period, such as 100/1m
    #[arg(long, value_name = "N/DURATION")]
    rate: Option<Rate>,
    /// Remove the limit of runs in progress
    #[arg(long, conflicts_with = "concurrency")]
    no_concurrency: bool,
    /// Remove the rate limit
    #[arg(long, conflicts_with = "rate")]
    no_rate: bool,
}

#[derive(Debug, Deserialize)]
struct Queue {
    name: String,
    concurrency: Option<u32>,
    rate: Option<String>,
    depth: u64,
    later: u64,
    oldest: Option<DbTime>,
    claimed: u64,
    #[serde(default)]
    asked_at: Option<DbTime>,
}

impl QueueCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(client, out).await,
            Self::Get(get) => show(&client.get(&["queues", &get.queue]).send().await?, out),
            Self::Set(set) => set.run(client, out).await,
        }
    }
}

impl List {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let page = client.get(&["queues"]).list(self.limit.max(1), self.cursor).await?;
        if out.is_json() {
            return Ok(out.json(&page)?);
        }
        let queues: Vec<Queue> = page.read()?;
        let text = |at: Option<DbTime>| at.map(|at| at.to_string()).unwrap_or_default();
        let instants: Vec<String> =
            queues.iter().flat_map(|queue| [text(queue.oldest), text(queue.asked_at)]).collect();
        let (zone, times) = fit::short_times(out, instants.iter().map(String::as_str));
        let row = |(queue, times): (&Queue, &[String])| {
            vec![
                Text::plain(&*queue.name),
                Text::number(queue.depth.to_string()),
                Text::number(queue.later.to_string()),
                Text::number(queue.claimed.to_string()),
                Text::plain(&*times[0]),
                Text::plain(&*times[1]),
                Text::number(queue.concurrency.map(|n| n.to_string()).unwrap_or_default()),
                Text::plain(queue.rate.clone().unwrap_or_default()),
            ]
        };
        let oldest = format!("OLDEST{zone}");
        let header = ["QUEUE", "DUE", "LATER", "RUNNING", &oldest, "LAST ASKED", "CONCURRENCY", "RATE"];
        fit::table(out, &header, queues.iter().zip(times.chunks(2)).map(row).collect(), &[])
    }
}

fn show(answer: &Answer, out: Output) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let queue: Queue = answer.read()?;
    Ok(out.facts(vec![
        ("Queue", Text::plain(&*queue.name)),
        ("Due", Text::plain(queue.depth.to_string())),
        ("Later", Text::plain(queue.later.to_string())),
        ("Running", Text::plain(queue.claimed.to_string())),
        ("Oldest", Text::plain(queue.oldest.map(|at| out.time(at)).unwrap_or_default())),
        (
            "Last asked",
            Text::plain(queue.asked_at.map_or_else(|| "no worker has asked yet".to_owned(), |at| out.time(at))),
        ),
        ("Concurrency", Text::plain(queue.concurrency.map(|n| n.to_string()).unwrap_or_default())),
        ("Rate", Text::plain(queue.rate.clone().unwrap_or_default())),
    ])?)
}

impl Set {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        if self.concurrency.is_none() && self.rate.is_none() && !self.no_concurrency && !self.no_rate {
            let message = "nothing to set; use --concurrency, --rate, --no-concurrency or --no-rate";
            return Err(Failure::usage(message).into());
        }
        // PUT replaces all limits, so start from the present ones. A queue that does not exist yet has none.
        let mut limits = Map::new();
        match client.get(&["queues", &self.queue]).send().await {
            Ok(answer) => {
                let now: Queue = answer.read()?;
                limits.extend(now.concurrency.map(|n| ("concurrency".to_owned(), n.into())));
                limits.extend(now.rate.map(|rate| ("rate".to_owned(), rate.into())));
            }
            Err(error) if failure::is_not_found(&error) => {}
            // Without the present limits, the PUT would remove the limit that this command does not name.
            Err(error) => return Err(error),
        }
        let mut set = |name: &str, value: Option<Value>, remove: bool| match value {
            Some(value) => _ = limits.insert(name.to_owned(), value),
            None if remove => _ = limits.remove(name),
            None => {}
        };
        set("concurrency", self.concurrency.map(Into::into), self.no_concurrency);
        set("rate", self.rate.map(|rate| rate.to_string().into()), self.no_rate);
        show(&client.put(&["queues", &self.queue]).json(&limits)?.send().await?, out)
    }
}
