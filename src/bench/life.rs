//! `bench life`: measures whole runs (tick, claim, dispatch, settle) through the real engine. The runs go to a target that
//! does nothing, to an HTTP sink in another process, or to workers that claim over HTTP from a server. The rate of the sink is
//! compared with that of a client without a scheduler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use everytick_domain::{
    access::{Grant, Lifetime, Pattern, Role, Scope},
    ids::TenantId,
    time::{DbTime, Span},
};
use everytick_engine::{Engine, TokioSpawn, new_token};
use everytick_store::{Actor, Creator, NewToken};
use everytick_targets::{AddressPolicy, Target, TargetSettings, Targets};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    child::{Server, Sink},
    database::{BenchDatabase, Open},
    jobs::{BenchTarget, Maker},
    progress::Progress,
    report::Report,
    rig::{self, NodeSetup},
    watch::NoopTarget,
};
use crate::{failure::Failure, node::OsEntropy};

pub(super) const AFTER_HELP: &str = "\
Examples:
  everytick bench life --jobs 200000
  everytick bench life --jobs 200000 --target http --database-url postgres://everytick@db/everytick
  everytick bench life --jobs 100000 --target queue --tokens
  everytick bench life --jobs 100000 --target queue --workers 4 --batch 100 --database-url postgres://everytick@db/everytick

Every job fires once, all within a few seconds, faster than a node can process them. `rate` is settled runs per second,
from the first tick to the last settlement. For http, `bare_rate` is the rate of a client without a scheduler on an equal
sink, with as many equal requests in parallel, before and after the runs; `bare_ratio` is `rate` / `bare_rate`.
`limit` is the rate of plain inserts of the same rows on this machine and database just before; `ratio` is
`rate` / `limit`. With --tokens, every request of a worker is authenticated; compare `rate` with that of a run without it.";

/// Ticks due in each second: more than a node can process.
const DUE_A_SECOND: u64 = 50_000;
/// The benchmark fails if the runs are not settled within this time.
const SETTLED_WITHIN: Duration = Duration::from_secs(600);
/// Requests of the bare client, before and after the runs.
const BARE_REQUESTS: u64 = 50_000;
/// Lowest expected rate of the bare client. Its requests must end before the first tick, so this rate determines the first
/// tick.
const BARE_A_SECOND_LEAST: u64 = 3_000;
const QUEUE: &str = "bench";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// A target that does nothing
    Noop,
    /// A webhook to a sink in another process
    Http,
    /// Pull workers over HTTP
    Queue,
}

#[derive(Debug, Args)]
pub(crate) struct LifeFlags {
    /// Register this many jobs, each of which fires once: 100 to 5,000,000
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=5_000_000))]
    jobs: u64,
    /// Deliver the runs to this kind of target
    #[arg(long, value_name = "TARGET", value_enum, default_value_t = Kind::Noop)]
    target: Kind,
    /// Allow at most this many runs in progress, up to 10,000
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slots: u64,
    /// For queue, start this many workers, up to 1,000
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    workers: u64,
    /// For queue, require tokens: each worker sends its own
    #[arg(long)]
    tokens: bool,
    /// For queue, let a worker claim and settle this many runs per request, up to 100
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    batch: u64,
}

impl LifeFlags {
    pub(super) fn run(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<Vec<Report>> {
        if self.tokens && self.target != Kind::Queue {
            return Err(Failure::usage("--tokens: only workers send tokens; add --target queue").into());
        }
        let report = Report::new("life").text("database", database.kind()).count("jobs", self.jobs);
        let (report, limit, rate) = match self.target {
            Kind::Noop => {
                let (limit, rate) = rig::measure(self.measure_noop(database, progress))?;
                (report.text("target", "noop").count("slots", self.slots), limit, rate)
            }
            Kind::Http => {
                let (before, limit, rate) = rig::measure(self.measure_http(database, progress))?;
                // Measure again without the node: the speed of the machine may have changed since the first measurement.
                let after = rig::measure(self.bare(progress))?;
                let bare = 2.0 / (1.0 / before + 1.0 / after);
                let report = report.text("target", "http").count("slots", self.slots).rate("bare_rate", bare);
                (report.ratio("bare_ratio", rate / bare), limit, rate)
            }
            Kind::Queue => {
                let (limit, first) = rig::measure(self.register_queue_jobs(database, progress))?;
                let tokens = rig::measure(self.create_tokens(database))?;
                let rate = rig::measure(self.measure_queue(database, progress, first, tokens))?;
                let report = report.text("target", "queue").count("workers", self.workers).count("batch", self.batch);
                (report.flag("tokens", self.tokens), limit, rate)
            }
        };
        Ok(vec![report.rate("rate", rate).rate("limit", limit).ratio("ratio", rate / limit)])
    }

    /// Measures the limit and registers the jobs. Returns the limit and the first tick. The first tick leaves time for the
    /// registration, and `ahead` for other work.
    async fn register(
        &self,
        open: &Open,
        progress: &Progress,
        target: BenchTarget,
        ahead: Duration,
    ) -> anyhow::Result<(f64, DbTime)> {
        let mut maker = Maker::new(target)?;
        progress.begin("measuring the limit", 1);
        open.probe.tidy().await?;
        let limit = rig::limit(open).await?;
        let ahead = Duration::from_secs_f64(6.0 + self.jobs as f64 / 4_000.0) + ahead;
        let first = rig::second_ahead(open, ahead).await?;
        let at = |n: u64| first.plus(Span::seconds(n / DUE_A_SECOND));
        rig::register(open, self.jobs, progress, |n, _| maker.firing_at(at(n))).await?;
        Ok((limit, first))
    }

    async fn measure_noop(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<(f64, f64)> {
        let open = database.open().await?;
        let (limit, first) = self.register(&open, progress, BenchTarget::Noop, Duration::ZERO).await?;
        let _engine = self.start(&open, Arc::new(NoopTarget)).await?;
        let rate = self.settled_rate(&open, progress, first, succeeded).await?;
        Ok((limit, rate))
    }

    /// Also returns the rate of the bare client, measured just before the node starts.
    async fn measure_http(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<(f64, f64, f64)> {
        let sink = Sink::start().await?;
        let open = database.open().await?;
        let ahead = Duration::from_secs(self.bare_requests() / BARE_A_SECOND_LEAST);
        let (limit, first) = self.register(&open, progress, BenchTarget::Http(sink.url.clone()), ahead).await?;
        let loopback = "127.0.0.0/8".parse().context("loopback")?;
        let addresses = AddressPolicy::new(vec![loopback]);
        let target = Targets::start(&TargetSettings { addresses, ..TargetSettings::default() })?;
        let bare = self.bare(progress).await?;
        let _engine = self.start(&open, Arc::new(target)).await?;
        let rate = self.settled_rate(&open, progress, first, succeeded).await?;
        Ok((bare, limit, rate))
    }

    async fn start(&self, open: &Open, target: Arc<dyn Target>) -> anyhow::Result<Engine> {
        let setup = NodeSetup { slots: self.slots as usize, ..NodeSetup::default() };
        let engine = rig::start(open, target, Arc::new(TokioSpawn), setup).await?;
        engine.loaded().await;
        Ok(engine)
    }

    fn bare_requests(&self) -> u64 {
        BARE_REQUESTS.min(self.jobs)
    }

    /// Requests per second of a client without a scheduler, to its own sink.
    async fn bare(&self, progress: &Progress) -> anyhow::Result<f64> {
        let sink = Sink::start().await?;
        progress.begin("measuring a bare client", self.bare_requests());
        bare(&sink.url, self.slots, self.bare_requests()).await
    }

    async fn register_queue_jobs(
        &self,
        database: &BenchDatabase,
        progress: &Progress,
    ) -> anyhow::Result<(f64, DbTime)> {
        let open = database.open().await?;
        self.register(&open, progress, BenchTarget::Queue(QUEUE.to_owned()), Duration::ZERO).await
    }

    /// A token for each worker; `None` for all without --tokens. The first token makes every request need one, and must be able
    /// to create others.
    async fn create_tokens(&self, database: &BenchDatabase) -> anyhow::Result<Vec<Option<String>>> {
        let mut tokens = vec![None; self.workers as usize];
        if !self.tokens {
            return Ok(tokens);
        }
        let store = database.open().await?.store;
        let queue = Pattern::try_from(QUEUE.to_owned()).map_err(anyhow::Error::msg)?;
        let scope = Scope { queues: Some(vec![queue]), ..Scope::default() };
        let grant = Grant { tenant: Some(TenantId::DEFAULT), role: Role::Worker, scope };
        let create = async |name: String, grant: Grant| {
            let (token, key) = new_token(store.now().await?, &OsEntropy)?;
            let new = NewToken { key, name, grant, allowed_ips: Vec::new(), lifetime: Lifetime::For(Span::days(1)) };
            store.create_token(&Actor::local("bench"), &Creator::Open, new).await?;
            anyhow::Ok(token)
        };
        create("admin".to_owned(), Grant::admin(TenantId::DEFAULT)).await?;
        for (number, place) in tokens.iter_mut().enumerate() {
            *place = Some(create(format!("w{number}"), grant.clone()).await?.expose().to_owned());
        }
        Ok(tokens)
    }

    async fn measure_queue(
        &self,
        database: &BenchDatabase,
        progress: &Progress,
        first: DbTime,
        tokens: Vec<Option<String>>,
    ) -> anyhow::Result<f64> {
        let server = Server::start(database).await?;
        let settled = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        for (number, token) in tokens.into_iter().enumerate() {
            workers.spawn(work(server.url.clone(), format!("w{number}"), token, self.batch, settled.clone()));
        }
        let counted = settled.clone();
        let all = self.settled_rate_from(progress, first, move || Ok(counted.load(Ordering::Relaxed)));
        let rate = tokio::select! {
            rate = all => rate?,
            ended = workers.join_next() => anyhow::bail!("a worker ended: {ended:?}"),
        };
        server.stop().await?;
        Ok(rate)
    }

    async fn settled_rate(
        &self,
        open: &Open,
        progress: &Progress,
        first: DbTime,
        count: impl Fn() -> anyhow::Result<u64>,
    ) -> anyhow::Result<f64> {
        let now = open.store.now().await?;
        anyhow::ensure!(
            now < first,
            "the machine is too slow: the jobs were not ready before they were due; use fewer --jobs"
        );
        self.settled_rate_from(progress, first, count).await
    }

    /// Waits until all runs are settled, and returns settled runs per second since `first`.
    async fn settled_rate_from(
        &self,
        progress: &Progress,
        first: DbTime,
        count: impl Fn() -> anyhow::Result<u64>,
    ) -> anyhow::Result<f64> {
        use everytick_store::{SystemClock, WallClock as _};
        progress.begin("processing runs", self.jobs);
        tokio::time::sleep(Duration::from(first.since(SystemClock.now()))).await;
        let begun = rig::clock();
        loop {
            let done = count()?;
            progress.at(done);
            if done >= self.jobs {
                return Ok(self.jobs as f64 / begun.elapsed().as_secs_f64());
            }
            anyhow::ensure!(begun.elapsed() < SETTLED_WITHIN, "{done} of {} runs were settled", self.jobs);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The number of succeeded runs in this process.
fn succeeded() -> anyhow::Result<u64> {
    let text = rig::metrics()?.render();
    let line = text.lines().find_map(|line| line.strip_prefix("everytick_runs_total{state=\"succeeded\"} "));
    line.context("the metric everytick_runs_total is missing")?
        .trim()
        .parse()
        .context("the metric everytick_runs_total is not a number")
}

/// The headers of a delivery, so that the sink reads as many bytes from either client.
const HEADERS: [(&str, &str); 10] = [
    ("everytick-job", "bench-00000001"),
    ("everytick-run", "019a8c2e-5f00-7000-8000-000000000001"),
    ("everytick-scheduled-at", "2026-11-16T12:00:00Z"),
    ("everytick-attempt", "1"),
    ("everytick-fence", "1763294400000000"),
    ("everytick-cause", "tick"),
    ("everytick-node", "bench"),
    ("idempotency-key", "019a8c2e-5f00-7000-8000-000000000001"),
    ("webhook-id", "019a8c2e-5f00-7000-8000-000000000001"),
    ("webhook-timestamp", "1763294400"),
];

async fn bare(url: &str, at_once: u64, requests: u64) -> anyhow::Result<f64> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let left = Arc::new(AtomicU64::new(requests));
    let header =
        |(name, value): (&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: HeaderMap = HEADERS.into_iter().map(header).collect();
    let begun = rig::clock();
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        let (client, left, url, headers) = (client.clone(), left.clone(), url.to_owned(), headers.clone());
        tasks.spawn(async move {
            let take = |left: u64| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                client.post(&url).headers(headers.clone()).send().await?.error_for_status()?.bytes().await?;
            }
            Ok::<_, reqwest::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(requests as f64 / begun.elapsed().as_secs_f64())
}

#[derive(Deserialize)]
struct Claimed {
    runs: Vec<ClaimedRun>,
}

#[derive(Deserialize)]
struct ClaimedRun {
    id: String,
    fence: i64,
}

/// A worker that claims a batch and settles it at once.
async fn work(
    server: String,
    name: String,
    token: Option<String>,
    batch: u64,
    settled: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
    }
    let client = reqwest::Client::builder().no_proxy().default_headers(headers).build()?;
    let (claim, settle) =
        (format!("{server}/api/v1/queues/{QUEUE}/claim"), format!("{server}/api/v1/queues/{QUEUE}/settle"));
    let claim_body = json!({ "worker": name, "limit": batch, "wait": "5s" });
    loop {
        let claimed: Claimed = client.post(&claim).json(&claim_body).send().await?.error_for_status()?.json().await?;
        if claimed.runs.is_empty() {
            continue;
        }
        let item = |run: &ClaimedRun| json!({ "run": run.id, "fence": run.fence, "outcome": "succeeded" });
        let body = json!({ "settles": claimed.runs.iter().map(item).collect::<Vec<_>>() });
        let answer: serde_json::Value =
            client.post(&settle).json(&body).send().await?.error_for_status()?.json().await?;
        let results = answer["results"].as_array().context("the answer has no results")?;
        let done = results.iter().filter(|result| result["status"] == 200).count();
        settled.fetch_add(done as u64, Ordering::Relaxed);
    }
}
