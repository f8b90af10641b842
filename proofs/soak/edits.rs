//! Edits, pauses and deletes as close to a tick as possible.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{Checks, Random, instant, ledger::Ledger, now_ms, server::Server, sink::Sink, sleep_until_ms};

/// How many jobs are edited at a time.
const AT_ONCE: usize = 25;

/// What was done to a job, and in which period each definition applied.
struct Done {
    name: String,
    /// (from, to, period): the definition's ticks after `from` and up to `to`.
    in_force: Vec<(i64, i64, i64)>,
    /// No later tick is allowed.
    last: i64,
    answered_at: i64,
    word: &'static str,
}

pub(crate) async fn run(times: u64, seed: u64) -> anyhow::Result<()> {
    println!("{times} edits, pauses and deletes within 50 ms of a tick, seed {seed}:");
    let dir = tempfile::tempdir()?;
    let (sink, hook) = Sink::start().await?;
    let server = Server::start(dir.path()).await?;
    let client = reqwest::Client::new();
    let limit = Arc::new(Semaphore::new(AT_ONCE));
    let mut random = Random::new(seed);
    let mut tasks = Vec::new();
    for n in 0..times {
        let permit = limit.clone().acquire_owned().await?;
        let (client, api, hook) = (client.clone(), format!("{}/api/v1/jobs", server.url), hook.clone());
        let (kind, offset) = (random.below(3), i64::try_from(random.below(101))? - 50);
        tasks.push(tokio::spawn(async move {
            let done = edit_one(&client, &api, &hook, n, kind, offset).await;
            drop(permit);
            done
        }));
    }
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await??);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.stop().await?;

    let ledger = Ledger::read(dir.path(), 1_000).await?;
    let (mut lost, mut unexpected, mut expected_ticks) = (0, 0, 0);
    for job in &done {
        let mut expected = BTreeSet::new();
        for (from, to, period) in &job.in_force {
            let first = (from / period + 1) * period;
            expected.extend((0..).map(|n| first + n * period).take_while(|tick| tick <= to));
        }
        let recorded: BTreeSet<_> =
            ledger.ticks.keys().filter(|(name, _)| *name == job.name).map(|(_, tick)| *tick).collect();
        expected_ticks += expected.len() as u64;
        lost += expected.difference(&recorded).count() as u64;
        unexpected += recorded.difference(&expected).count() as u64;
    }
    let after = sink
        .all()
        .iter()
        .filter(|delivery| done.iter().any(|job| job.name == delivery.job && delivery.scheduled_at > job.last))
        .count() as u64;
    for word in ["edit", "pause", "delete"] {
        let of: Vec<_> = done.iter().filter(|job| job.word == word).collect();
        let near = of.iter().filter(|job| (job.answered_at + 100).rem_euclid(1_000) <= 200).count();
        println!("  {word}: {}, of which {near} were answered within 100 ms of a tick", of.len());
    }
    let mut checks = Checks::new();
    checks.expect("recorded ticks", ledger.ticks.len() as u64, expected_ticks);
    checks.expect("ticks recorded twice", ledger.doubled(), 0);
    checks.expect("ticks lost", lost, 0);
    checks.expect("ticks that no definition in force had", unexpected, 0);
    checks.expect("deliveries of ticks after the last definition ended", after, 0);
    checks.end()
}

/// One job from creation to end: about a second of ticks, an edit near a tick, and about a second more.
async fn edit_one(
    client: &reqwest::Client,
    api: &str,
    hook: &str,
    n: u64,
    kind: u64,
    offset: i64,
) -> anyhow::Result<Done> {
    let name = format!("edited-{n:04}");
    let spec = |every: &str| json!({"name": name, "schedule": {"every": every}, "target": {"http": {"url": hook}}, "overlap": "allow"});
    let made = answer(client.post(api).json(&spec("1s"))).await?;
    let created = instant(&made["created_at"])?;
    sleep_until_ms((now_ms() / 1_000 + 2) * 1_000 + offset).await;
    let url = format!("{api}/{name}");
    let (word, in_force, last, answered_at) = match kind {
        0 => {
            let edited = answer(client.put(&url).json(&spec("2s"))).await?;
            let (edited_at, answered_at) = (instant(&edited["effective_at"])?, now_ms());
            tokio::time::sleep(Duration::from_millis(2_100)).await;
            let paused = answer(client.post(format!("{url}/pause")).json(&json!({}))).await?;
            let end = instant(&paused["effective_at"])?;
            ("edit", vec![(created, edited_at, 1_000), (edited_at, end, 2_000)], end, answered_at)
        }
        1 => {
            let paused = answer(client.post(format!("{url}/pause")).json(&json!({}))).await?;
            let end = instant(&paused["effective_at"])?;
            ("pause", vec![(created, end, 1_000)], end, now_ms())
        }
        _ => {
            let deleted = answer(client.delete(&url)).await?;
            let end = instant(&deleted["effective_at"])?;
            ("delete", vec![(created, end, 1_000)], end, now_ms())
        }
    };
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    Ok(Done { name, in_force, last, answered_at, word })
}

async fn answer(request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let response = request.send().await?;
    let status = response.status();
    let body = response.text().await?;
    anyhow::ensure!(status.is_success(), "{status}: {body}");
    serde_json::from_str(&body).context("not JSON")
}
