//! A server for one test, on a free port with its own data. The test can stop or kill it; it is killed when the test ends.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
};

use tempfile::TempDir;

use super::{
    WAIT_MAX,
    command::{Done, everytick_command, with_stdin},
    wait_for,
};

/// The flags, environment and data of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerBuilder {
    flags: Vec<String>,
    env: Vec<(String, String)>,
    dir: Option<TempDir>,
    listen: Option<String>,
}

impl ServerBuilder {
    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(ToString::to_string));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses the data of an earlier server.
    pub(crate) fn dir(mut self, dir: TempDir) -> Self {
        self.dir = Some(dir);
        self
    }

    /// Listens on the address of an earlier server instead of a free port.
    pub(crate) fn url(mut self, url: &str) -> Self {
        self.listen = url.strip_prefix("http://").map(ToOwned::to_owned);
        self
    }

    /// Starts the server and waits until it listens.
    pub(crate) fn start(self) -> Server {
        let dir = self.dir.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let mut child = everytick_command(dir.path())
            .args(["serve", "--listen", self.listen.as_deref().unwrap_or("127.0.0.1:0"), "--data-dir", "data"])
            .args(&self.flags)
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();

        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let (banner, log) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(Vec::new())));
        let (url_sender, url_receiver) = mpsc::channel();
        // Read both to their end, so that a full pipe never blocks the server.
        let readers = vec![
            thread::spawn({
                let banner = Arc::clone(&banner);
                move || {
                    let mut url = None;
                    for line in stdout.lines().map_while(Result::ok) {
                        url = url.or(line.trim().strip_prefix("listening on ").map(ToOwned::to_owned));
                        *banner.lock().unwrap() += &format!("{line}\n");
                        // An empty line ends the banner.
                        if line.is_empty() {
                            url.take().into_iter().for_each(|url| drop(url_sender.send(url)));
                        }
                    }
                }
            }),
            thread::spawn({
                let log = Arc::clone(&log);
                move || {
                    let mut chunk = [0; 4096];
                    while let Ok(read @ 1..) = stderr.read(&mut chunk) {
                        log.lock().unwrap().extend_from_slice(&chunk[..read]);
                    }
                }
            }),
        ];
        // Construct it before the wait, so that a server that never listens is killed too.
        let mut server = Server { child, dir: Some(dir), url: String::new(), banner, log, readers };
        match url_receiver.recv_timeout(WAIT_MAX) {
            Ok(url) => server.url = url,
            Err(_) => panic!("the server does not listen; its log:\n{}", server.log()),
        }
        server
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    dir: Option<TempDir>,
    url: String,
    banner: Arc<Mutex<String>>,
    log: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    pub(crate) fn start() -> Self {
        Self::builder().start()
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The working directory of the server. Its data is in `data`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    /// The banner that it printed at the start.
    pub(crate) fn banner(&self) -> String {
        self.banner.lock().unwrap().clone()
    }

    /// Waits until the log has this text. The server writes its log in the background.
    pub(crate) fn wait_for_log(&self, text: &str) {
        super::wait_for(&format!("the log to have {text:?}"), || self.log().contains(text).then_some(()));
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    /// Runs a command of the CLI against this server.
    pub(crate) fn everytick(&self, args: &[&str]) -> Done {
        self.command(args).output().unwrap().into()
    }

    pub(crate) fn everytick_with_stdin(&self, args: &[&str], stdin: &str) -> Done {
        with_stdin(&mut self.command(args), stdin)
    }

    /// Runs shell lines with the binary in PATH and this server set. Returns stdout. Panics if a line fails.
    pub(crate) fn script(&self, lines: &str) -> String {
        let binary = std::path::Path::new(env!("CARGO_BIN_EXE_everytick")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("sh");
        let run = shell.args(["-c", &format!("set -e\n{lines}")]).env("PATH", path).env("EVERYTICK_SERVER", &self.url);
        let done = run.current_dir(self.dir()).env("XDG_CONFIG_HOME", self.dir().join("config")).output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{stdout}{stderr}");
        stdout.into_owned()
    }

    /// A command of the CLI for this server, for the test to run.
    pub(crate) fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = everytick_command(self.dir());
        command.env("EVERYTICK_SERVER", &self.url).args(args).stdin(Stdio::null());
        command
    }

    /// Sends a signal, such as `TERM`, `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let sent =
            std::process::Command::new("sh").args(["-c", "kill -s $0 $1", name, &self.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until the process has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait_for("the server to end", || self.child.try_wait().unwrap())
    }

    /// Sends SIGTERM, waits for the end, and returns data, exit status and log.
    pub(crate) fn stop(mut self) -> (TempDir, ExitStatus, String) {
        self.signal("TERM");
        let status = self.ended();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        (self.dir.take().unwrap(), status, self.log())
    }

    /// Sends SIGKILL and returns the data.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.dir.take().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the log of the server:\n{}", self.log());
        }
    }
}
