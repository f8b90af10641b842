//! Child processes of a benchmark, from the same binary: the webhook sink and a server. Both end with the benchmark.

use std::{net::TcpListener, path::PathBuf, process::Stdio, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::database::BenchDatabase;

/// Limit for the start of a server.
const READY_WITHIN: Duration = Duration::from_secs(120);

fn program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("could not find the path of this program")?);
    // Variables that configure the user's servers must not configure these processes.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("EVERYTICK_")) {
            command.env_remove(name);
        }
    }
    command.kill_on_drop(true);
    Ok(command)
}

/// Answers every request with 200.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) url: String,
    _child: Child,
}

impl Sink {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let mut child = program()?.args(["bench", "sink"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the sink has no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let address = line.context("the sink did not start")?;
        Ok(Self { url: format!("http://{address}/hook"), _child: child })
    }
}

/// A node on the benchmark's database, started with `everytick serve`.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) url: String,
    child: Child,
    _data: DataDir,
}

/// The data directory of a server, removed with it. It stays empty, because the database is elsewhere.
#[derive(Debug)]
struct DataDir(PathBuf);

impl Drop for DataDir {
    fn drop(&mut self) {
        // An empty directory that remains among the temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Server {
    pub(super) async fn start(database: &BenchDatabase) -> anyhow::Result<Self> {
        // The port is free now. If another process binds it first, the server ends with an error.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = program()?;
        let data = DataDir(std::env::temp_dir().join(format!("everytick-bench-{}", address.port())));
        command.args(["serve", "--listen", &address.to_string(), "--log-level", "error", "--data-dir"]).arg(&data.0);
        // Pass the URL in the environment: it may contain a password, and all users can see arguments.
        command.env("EVERYTICK_DATABASE_URL", database.url()).env("EVERYTICK_MAX_JOBS", "1000000000");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut server = Self { url: format!("http://{address}"), child: command.spawn()?, _data: data };
        let ready = format!("{}/readyz", server.url);
        let client = reqwest::Client::new();
        let begun = super::rig::clock();
        while begun.elapsed() < READY_WITHIN {
            if let Some(status) = server.child.try_wait()? {
                anyhow::bail!("the server ended: {status}");
            }
            if client.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("the server was not ready within {READY_WITHIN:?}")
    }

    /// Anonymous resident memory in bytes, which excludes pages of the program file.
    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        let pid = self.child.id().context("the server has ended")?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1_024)
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("could not kill the server")
    }
}
