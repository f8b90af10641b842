//! One healthy job beside loads that once blocked it:
//!
//! - clients that list without end, clients that never read, and idle connections,
//! - one greedy job whose receiver never answers, and thousands of jobs of another such receiver,
//! - webhooks to a DNS zone whose name server never answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use everytick_store::conformance::server::Server as Postgres;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream, UdpSocket},
};

use crate::{
    Checks, create_jobs, now_ms, rfc3339,
    server::Server,
    sink::{self, Sink},
    sleep_until_ms,
};

/// Clients that list jobs and runs, page after page.
const READERS: usize = 20;
/// Clients that request a large list and never read the answer.
const NEVER_READ: usize = 10;
/// Connections that never send a byte.
const IDLE: usize = 300;
/// Jobs with large definitions, which make lists large.
const LISTED: usize = 2_000;
/// Jobs every second whose host is in the DNS zone that never answers.
const DEAD: usize = 300;
/// Jobs every minute for one host that accepts connections and never answers.
const HANGING: usize = 20_000;
/// The name server of the dead zone; `scripts/soak crowd` points resolv.conf to it.
const DEAD_SERVER: &str = "127.0.0.153:53";
const LAG_MAX_MS: i64 = 1_000;
const MEMORY_MAX_MB: u64 = 500;

pub(crate) async fn run(seconds: u64) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data").display().to_string();
    run_on("SQLite", &["--data-dir", &data], seconds).await?;
    let database = Postgres::shared().blank().await;
    run_on("PostgreSQL", &["--database-url", &database.url], seconds).await
}

async fn run_on(store: &str, flags: &[&str], seconds: u64) -> anyhow::Result<()> {
    println!("one job every second for {seconds} s beside a crowd, on {store}:");
    let (sink, hook) = Sink::start().await?;
    let tarpits = [tarpit().await?, tarpit().await?];
    let dead = UdpSocket::bind(DEAD_SERVER).await.ok();
    if dead.is_none() {
        println!("  no permission to bind port 53 (run as root): test without the dead zone");
    }
    let server = Server::serve(&[&["--node-name", "crowd"], flags].concat()).await?;
    let from = (now_ms() / 1_000 + 8) * 1_000;
    let to = from + i64::try_from(seconds - 1)? * 1_000;
    let lines = jobs(&hook, &tarpits, dead.is_some(), from, to);
    create_jobs(reqwest::Client::new().post(format!("{}/api/v1/jobs/batch", server.url)), lines).await?;
    let crowd = Crowd::start(&server.url).await?;
    sleep_until_ms(to + 5_000).await;
    let memory = server.memory_mb()?;
    crowd.stop();
    let listed: serde_json::Value =
        reqwest::get(format!("{}/api/v1/jobs/victim/runs?limit=1000", server.url)).await?.json().await?;
    let runs = listed["items"].as_array().cloned().unwrap_or_default();
    let skipped = runs.iter().filter(|run| run["state"] == "skipped").count();
    let answers = crowd.answers.load(Ordering::Relaxed);
    server.kill().await?;
    let deliveries = sink.all();
    let (p50, p99, max) = sink::lag(&deliveries);
    println!(
        "  lag of the healthy job: p50 {p50} ms, p99 {p99} ms, max {max} ms; {answers} lists answered; peak memory {memory} MB"
    );
    let mut checks = Checks::new();
    checks.expect("recorded ticks", runs.len() as u64, seconds);
    checks.expect("skips", skipped as u64, 0);
    checks.expect("deliveries", deliveries.len() as u64, seconds);
    checks.expect("p99 above 1 s", u64::from(p99 >= LAG_MAX_MS), 0);
    checks.expect("memory above the limit", u64::from(memory >= MEMORY_MAX_MB), 0);
    checks.end()
}

fn jobs(hook: &str, [one, other]: &[String; 2], dead_zone: bool, from: i64, to: i64) -> String {
    let every = serde_json::json!({"every": "1s", "starts_at": rfc3339(from), "ends_at": rfc3339(to)});
    let job = |name: String, url: &str| serde_json::json!({"name": name, "schedule": every, "target": {"http": {"url": url}}});
    let mut jobs = vec![job("victim".to_owned(), hook)];
    let mut greedy = job("greedy".to_owned(), one);
    greedy["overlap"] = "allow".into();
    greedy["max_concurrent"] = 1_000.into();
    greedy["timeout"] = "1h".into();
    jobs.push(greedy);
    for n in 0..LISTED {
        let mut listed = job(format!("listed-{n:05}"), hook);
        listed["schedule"] = serde_json::json!({"cron": "0 0 1 1 *"});
        listed["payload"] = serde_json::json!({"text": "x".repeat(16_000)});
        jobs.push(listed);
    }
    for n in 0..HANGING {
        let mut hanging = job(format!("hanging-{n:05}"), other);
        let starts = rfc3339(from + i64::try_from(n % 60).unwrap_or_default() * 1_000);
        hanging["schedule"] = serde_json::json!({"every": "1m", "starts_at": starts});
        jobs.push(hanging);
    }
    if dead_zone {
        jobs.extend((0..DEAD).map(|n| job(format!("dead-{n:03}"), &format!("http://host-{n}.dead.example/"))));
    }
    jobs.iter().map(|job| format!("{job}\n")).collect()
}

/// A receiver that accepts connections and never answers; returns its URL.
async fn tarpit() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    Ok(url)
}

struct Crowd {
    stopped: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    connections: Vec<TcpStream>,
}

impl Crowd {
    async fn start(url: &str) -> anyhow::Result<Self> {
        let (stopped, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        for n in 0..READERS {
            let (url, stopped, answers) = (url.to_owned(), stopped.clone(), answers.clone());
            tokio::spawn(async move { read_lists(&url, n, &stopped, &answers).await });
        }
        let address = url.trim_start_matches("http://");
        let mut connections = Vec::new();
        for _ in 0..IDLE {
            connections.push(TcpStream::connect(address).await?);
        }
        for _ in 0..NEVER_READ {
            let mut client = TcpStream::connect(address).await?;
            let request = format!("GET /api/v1/jobs?limit=1000&include=payload HTTP/1.1\r\nhost: {address}\r\n\r\n");
            client.write_all(request.as_bytes()).await?;
            connections.push(client);
        }
        Ok(Self { stopped, answers, connections })
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        println!("  {} connections were idle or never read", self.connections.len());
    }
}

async fn read_lists(url: &str, n: usize, stopped: &AtomicBool, answers: &AtomicU64) {
    let list = if n.is_multiple_of(2) { "jobs?limit=1000" } else { "runs?limit=1000&status=cancelled" };
    let client = reqwest::Client::new();
    while !stopped.load(Ordering::Relaxed) {
        let request = client.get(format!("{url}/api/v1/{list}")).timeout(Duration::from_secs(30)).send();
        let answered = async { request.await?.error_for_status()?.bytes().await };
        if answered.await.is_ok() {
            answers.fetch_add(1, Ordering::Relaxed);
        } else {
            // The node is busy: retry a moment later, as a correct client does.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
