//! `bench register`: measures registered jobs per second, through the batch API of a real server and through the store. Also
//! measures the size of a job on disk, and the memory of the server.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;

use super::{
    JOBS_MAX,
    child::Server,
    database::BenchDatabase,
    jobs::{BenchTarget, Maker},
    progress::Progress,
    report::Report,
    rig,
};

pub(super) const AFTER_HELP: &str = "\
Examples:
  everytick bench register --jobs 100000
  everytick bench register --jobs 1000000 --database-url postgres://everytick@db/everytick

Most jobs are daily. `rate` is the rate of POST /api/v1/jobs/batch to a server in another process, `store_rate`
the rate of a tenth as many jobs through the store alone. `bytes_per_job` is the size of a job on disk with all
indexes, without the audit row of its creation; `audit_bytes_per_job` is the size of that row. `memory_bytes` is
the anonymous memory of the server when it is idle again.";

/// Lines per request. The API accepts up to 100,000.
const LINES: u64 = 20_000;
/// After this long, the server has read all changes and is idle.
const IDLE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct RegisterFlags {
    /// Register this many jobs, 1,000 to 100,000,000
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=JOBS_MAX))]
    jobs: u64,
}

impl RegisterFlags {
    pub(super) fn run(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<Vec<Report>> {
        let limit = rig::measure(async {
            progress.begin("measuring the limit", 1);
            rig::limit(&database.open().await?).await
        })?;
        let (rate, memory) = rig::measure(self.over_http(database, progress))?;
        let (store_rate, bytes) = rig::measure(self.by_store(database, progress))?;
        let jobs = self.jobs as f64;
        Ok(vec![
            Report::new("register")
                .text("database", database.kind())
                .count("jobs", self.jobs)
                .rate("rate", rate)
                .rate("limit", limit)
                .ratio("ratio", rate / limit)
                .rate("store_rate", store_rate)
                .bytes("bytes_per_job", bytes.jobs as f64 / jobs)
                .bytes("audit_bytes_per_job", bytes.audit as f64 / jobs)
                .bytes("memory_bytes", memory as f64),
        ])
    }

    async fn over_http(&self, database: &BenchDatabase, progress: &Progress) -> anyhow::Result<(f64, u64)> {
        let server = Server::start(database).await?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        progress.begin("registering over HTTP", self.jobs);
        let begun = rig::clock();
        let mut made = 0;
        let mut next = (self.jobs > 0).then(|| lines(0, LINES.min(self.jobs)));
        while let Some(body) = next.take() {
            let count = LINES.min(self.jobs - made);
            let url = format!("{}/api/v1/jobs/batch", server.url);
            let sent = client.post(url).header("content-type", "application/x-ndjson").body(body).send();
            // Build the next lines while the server processes these.
            let sent = tokio::spawn(async move { sent.await?.error_for_status()?.bytes().await });
            made += count;
            if made < self.jobs {
                next = Some(lines(made, LINES.min(self.jobs - made)));
            }
            let answer = sent.await??;
            let good = answer.split(|byte| *byte == b'\n').filter(|line| is_created(line)).count() as u64;
            anyhow::ensure!(good == count, "only {good} of {count} jobs were created: {}", wrong(&answer));
            progress.at(made);
        }
        let rate = self.jobs as f64 / begun.elapsed().as_secs_f64();
        tokio::time::sleep(IDLE).await;
        let memory = server.memory()?;
        server.stop().await?;
        Ok((rate, memory))
    }

    async fn by_store(
        &self,
        database: &BenchDatabase,
        progress: &Progress,
    ) -> anyhow::Result<(f64, everytick_store::JobBytes)> {
        let open = database.open().await?;
        let bytes = open.probe.job_bytes().await?;
        let mut maker = Maker::new(BenchTarget::Noop)?;
        let rate = rig::register(&open, self.jobs / 10, progress, |_, now| maker.idle(now)).await?;
        Ok((rate, bytes))
    }
}

fn is_created(line: &[u8]) -> bool {
    line.windows(12).any(|part| part == b"\"status\":201")
}

fn wrong(answer: &Bytes) -> String {
    let line = answer.split(|byte| *byte == b'\n').find(|line| !line.is_empty() && !is_created(line));
    line.map(|line| String::from_utf8_lossy(line).chars().take(300).collect()).unwrap_or_default()
}

/// Minimal definitions, as users write them: a schedule in a time zone, and a webhook.
fn lines(from: u64, count: u64) -> String {
    const ZONES: [&str; 4] = ["UTC", "Europe/Paris", "America/New_York", "Asia/Tokyo"];
    let line = |n: u64| {
        let (minute, hour, zone) = (n * 7 % 60, n * 11 % 24, ZONES[(n % 4) as usize]);
        let day = match n % 20 {
            0 => "1 1 *",
            1 | 2 => "1 * *",
            3..=5 => "* * MON",
            _ => "* * *",
        };
        format!(
            "{{\"name\":\"job-{n:08}\",\"schedule\":{{\"cron\":\"{minute} {hour} {day}\",\"timezone\":\"{zone}\"}},\
             \"target\":{{\"http\":{{\"url\":\"https://example.org/hook\"}}}}}}\n"
        )
    };
    (from..from + count).map(line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_with_status_201_is_a_created_job() {
        assert!(super::is_created(br#"{"line":1,"status":201,"id":"x"}"#));
        assert!(!super::is_created(br#"{"line":1,"status":409}"#));
    }
}
