//! A node: the real binary, its log, its clock, and access to its API.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use rustix::process::Signal;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpStream, UnixStream},
    process::{Child, Command},
};

use crate::{
    common::{now_ms, sleep_ms},
    net::{Host, Net},
    process,
    sabotage::Sabotage,
};

pub(crate) const LEASE_MS: i64 = 5_000;
const LEASE: &str = "5s";
/// Longer than the timeout of every job of the campaign.
const DRAIN: &str = "6s";
const STOP_MAX: Duration = Duration::from_secs(20);
const START_MS_MAX: i64 = 60_000;
/// How long a request waits for its answer. After that its outcome is unknown.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// Settings that all nodes share.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) net: Net,
    pub(crate) binary: PathBuf,
    pub(crate) database_url: String,
    pub(crate) folder: PathBuf,
    /// Path of libfaketime, if it is installed.
    pub(crate) faketime: Option<PathBuf>,
    pub(crate) sabotage: Option<Sabotage>,
}

pub(crate) struct Node {
    setup: Setup,
    n: usize,
    port: u16,
    child: Option<Child>,
    /// Runs until this process ends.
    _forward: Option<Child>,
    api: Api,
}

/// Access to a node's API, for tasks that do not own the node.
#[derive(Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    url: String,
    /// The forwarded socket of a node in its own network namespace.
    socket: Option<PathBuf>,
}

impl Api {
    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).timeout(ANSWER_MAX)
    }

    /// Connects, sends nothing, and waits until the server closes the connection.
    pub(crate) async fn connect_idle(&self) -> std::io::Result<()> {
        let mut byte = [0];
        match &self.socket {
            Some(socket) => UnixStream::connect(socket).await?.read(&mut byte).await?,
            None => TcpStream::connect(self.url.trim_start_matches("http://")).await?.read(&mut byte).await?,
        };
        Ok(())
    }
}

impl Node {
    pub(crate) async fn start(setup: Setup, n: usize) -> anyhow::Result<Self> {
        let (port, forward) = match setup.net {
            Net::Spaces => (8640, Some(forward(&setup, n).await?)),
            Net::Plain => (free_port()?, None),
        };
        let mut client = reqwest::Client::builder().no_proxy();
        let socket = forward.is_some().then(|| socket(&setup.folder, n));
        if let Some(socket) = &socket {
            client = client.unix_socket(socket.clone());
        }
        let api = Api { client: client.build()?, url: format!("http://127.0.0.1:{port}"), socket };
        let mut node = Self { setup, n, port, child: None, _forward: forward, api };
        node.move_clock("+0")?;
        node.spawn()?;
        node.wait_for_answer().await?;
        Ok(node)
    }

    pub(crate) fn api(&self) -> Api {
        self.api.clone()
    }

    fn spawn(&mut self) -> anyhow::Result<()> {
        let setup = &self.setup;
        let log = File::options().create(true).append(true).open(setup.folder.join(format!("n{}.log", self.n + 1)))?;
        let mut command = setup.net.command(Host::Node(self.n), "env");
        // Only the last node runs with the library that moves its clock. A defect of the library thus affects only this node.
        if let Some(library) = setup.faketime.as_ref().filter(|_| self.has_moving_clock()) {
            command
                .arg(format!("LD_PRELOAD={}", library.display()))
                .arg(format!("FAKETIME_TIMESTAMP_FILE={}", self.clock_file().display()))
                .args(["FAKETIME_CACHE_DURATION=1", "DONT_FAKE_MONOTONIC=1"]);
        }
        if let Some(mutant) = setup.sabotage.and_then(Sabotage::mutant) {
            command.arg(format!("EVERYTICK_MUTANT={mutant}"));
        }
        let database_url = Sabotage::url(setup.sabotage, &setup.database_url, self.n);
        command
            .arg(&setup.binary)
            .args(["serve", "--database-url", &database_url, "--node-name", &format!("n{}", self.n + 1)])
            .args(["--listen", &format!("127.0.0.1:{}", self.port), "--lease", LEASE])
            .args(["--allow-webhook-range", setup.net.webhook_range(), "--drain-timeout", DRAIN])
            .current_dir(&setup.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        self.child = Some(command.spawn().context("could not start a node")?);
        Ok(())
    }

    async fn wait_for_answer(&mut self) -> anyhow::Result<()> {
        let until = now_ms() + START_MS_MAX;
        loop {
            let answer = self.api.request(reqwest::Method::GET, "/healthz").send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if let Some(ended) = self.child_mut()?.try_wait()? {
                anyhow::bail!("n{} exited with {ended}; see its log", self.n + 1);
            }
            anyhow::ensure!(now_ms() < until, "n{} does not answer", self.n + 1);
            sleep_ms(50).await;
        }
    }

    fn child_mut(&mut self) -> anyhow::Result<&mut Child> {
        self.child.as_mut().context("the node is down")
    }

    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child_mut()?.kill().await?;
        self.child = None;
        Ok(())
    }

    /// Starts it without waiting until it answers: the database may be down.
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        self.spawn()
    }

    /// Restarts it if it has exited by itself, as a supervisor would. Returns the exit status as text.
    pub(crate) fn revive(&mut self) -> anyhow::Result<Option<String>> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        let Some(ended) = child.try_wait()? else { return Ok(None) };
        self.spawn()?;
        Ok(Some(format!("n{} exited with {ended}", self.n + 1)))
    }

    pub(crate) fn freeze(&mut self) -> anyhow::Result<()> {
        process::signal(self.child_mut()?, Signal::STOP)
    }

    pub(crate) fn thaw(&mut self) -> anyhow::Result<()> {
        process::signal(self.child_mut()?, Signal::CONT)
    }

    /// Stops it with SIGTERM, as a deploy does. Returns whether it exited in time.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<bool> {
        let ended = process::end(self.child_mut()?, Signal::TERM, STOP_MAX).await?;
        self.child = None;
        Ok(ended)
    }

    pub(crate) async fn restart(&mut self) -> anyhow::Result<bool> {
        let ended = self.stop().await?;
        self.spawn()?;
        self.wait_for_answer().await?;
        Ok(ended)
    }

    fn has_moving_clock(&self) -> bool {
        self.n + 1 == crate::net::NODES
    }

    fn clock_file(&self) -> PathBuf {
        self.setup.folder.join(format!("n{}.clock", self.n + 1))
    }

    /// Moves the clock by seconds, written as `+10` or `-3600`.
    pub(crate) fn move_clock(&self, by: &str) -> anyhow::Result<()> {
        // Replaced atomically, so that libfaketime never reads a half-written file.
        let new = self.setup.folder.join(format!("n{}.clock.new", self.n + 1));
        fs::write(&new, format!("{by}\n"))?;
        Ok(fs::rename(new, self.clock_file())?)
    }
}

fn socket(folder: &Path, n: usize) -> PathBuf {
    folder.join(format!("n{}.api", n + 1))
}

async fn forward(setup: &Setup, n: usize) -> anyhow::Result<Child> {
    let (me, socket) = (std::env::current_exe()?, socket(&setup.folder, n));
    let mut command: Command = setup.net.command(Host::Node(n), &me.display().to_string());
    let child = command
        .arg("forward")
        .arg(&socket)
        .arg("127.0.0.1:8640")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("could not start the forwarder to a node")?;
    for _ in 0..200 {
        if socket.exists() {
            return Ok(child);
        }
        sleep_ms(20).await;
    }
    anyhow::bail!("the forwarder to n{} did not open its socket", n + 1)
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The path of libfaketime on Debian.
pub(crate) fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?;
    folders.filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketimeMT.so.1"))).find(|path| path.exists())
}
