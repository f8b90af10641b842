//! Runs a command on the node, in a clean environment, under a supervisor that ends all its processes when the delivery ends, for
//! every cause of the end. A process that remained could overlap the next run. [`super::exec`] has the supervisor.

use std::{
    convert::Infallible,
    ffi::OsString,
    future::pending,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _, unix::net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use everytick_domain::{
    secret::{Encoding, Scrubber},
    target::{Command, Outcome, Retry, ShellTarget},
    wrong_input::os_error,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, ChildStderr, ChildStdout},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::{
    exec::{Charge, EXEC_COMMAND, Order, REPORT_BYTES_MAX, Report, SUPERVISE, Step, frame, leftovers, payload_frame},
    isolation::{Cgroup, CgroupPlace, Isolation},
    orphans,
    policy::CommandPolicy,
    validate::validate,
};
use crate::{Dispatch, LiveOutput, Secrets, Stream, permanent_failure, tail::Tail};

/// Time between TERM and KILL.
pub const TERM_GRACE: Duration = Duration::from_secs(5);
/// The program of this process, also when its file has been replaced.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long a descendant may continue to write after the command itself has ended.
const LINGER: Duration = Duration::from_millis(500);
/// How long to wait until all processes of a command have ended. The delivery does not wait longer for one that is stuck in the
/// kernel; its supervisor does.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// How long the check at the start may take.
const PROBE_MAX: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 16 * 1024;
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SH: &str = "/bin/sh";
const LANG: &str = "C.UTF-8";
/// systemd-run without root needs it to find the manager of the user.
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// The operator's settings for commands.
#[derive(Clone, Debug)]
pub struct ShellSettings {
    /// The time between TERM and KILL, normally [`TERM_GRACE`].
    pub grace: Duration,
    /// The installation that the commands belong to. Commands carry its mark, by which [`super::end_orphans`] finds those
    /// that outlived their server.
    pub owner: Option<String>,
    pub isolation: Isolation,
    /// A program with the subcommand [`EXEC_COMMAND`], normally [`THIS_PROGRAM`].
    pub launcher: PathBuf,
}

impl ShellSettings {
    /// Commands of this process's user, without limits.
    #[must_use]
    pub fn new(owner: Option<String>) -> Self {
        Self { grace: TERM_GRACE, owner, isolation: Isolation::default(), launcher: THIS_PROGRAM.into() }
    }

    /// The first part of the names of control groups.
    fn prefix(&self) -> String {
        match &self.owner {
            Some(owner) => format!("everytick-{}-", orphans::id(owner)),
            None => "everytick-".to_owned(),
        }
    }

    /// Whether commands can be isolated as these settings ask for. Starts a supervisor that starts no command. Before that it
    /// removes what a killed server left behind.
    pub async fn probe(&self) -> Result<(), String> {
        if let Some(Cgroup { place: CgroupPlace::Directory(parent), .. }) = &self.isolation.cgroup {
            leftovers(parent, &self.prefix(), orphans::lives);
        }
        let order = Order {
            program: SH.into(),
            arg0: SH.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            workdir: None,
            isolation: self.isolation.clone(),
            probe: true,
        };
        let failed = |error: io::Error| format!("could not start {}: {}", self.launcher.display(), os_error(&error));
        let frames = frames(&self.charge("probe"), &order, None).map_err(failed)?;
        let mut group = Group::spawn(self, "probe").map_err(failed)?;
        let mut stderr = Vec::new();
        let mut errors = group.child.stderr.take();
        let report = timeout(PROBE_MAX, async {
            group.send(&frames).await;
            let report = group.report().await;
            if let Some(errors) = &mut errors {
                let _ = errors.take(REPORT_BYTES_MAX as u64).read_to_end(&mut stderr).await;
            }
            report
        });
        match report.await {
            Ok(Ok(Report::Ready)) => Ok(()),
            Ok(Ok(Report::Refused { what, .. })) => Err(what),
            Ok(Ok(Report::Ended { .. })) => Err(String::from_utf8_lossy(&stderr).trim().to_owned()),
            Ok(Err(error)) => Err(os_error(&error)),
            Err(_) => Err(format!("no answer within {PROBE_MAX:?}")),
        }
    }

    fn charge(&self, name: &str) -> Charge {
        Charge {
            cgroup: self.isolation.cgroup.clone(),
            name: format!("{}{}-{name}", self.prefix(), std::process::id()),
        }
    }
}

/// Commands get only `HOME` from the node's environment, because its settings may contain passwords.
#[derive(Debug)]
pub(super) struct Runner {
    settings: ShellSettings,
    policy: CommandPolicy,
    home: Option<OsString>,
}

impl Runner {
    pub(super) fn new(settings: ShellSettings, policy: CommandPolicy) -> Self {
        let home = settings.isolation.home().map(|home| home.clone().into_os_string());
        Self { settings, policy, home: home.or_else(|| std::env::var_os("HOME")) }
    }

    pub(super) async fn run(
        &self,
        dispatch: &Dispatch,
        what: &ShellTarget,
        live: &dyn LiveOutput,
        cancel: &CancellationToken,
    ) -> Outcome {
        if let Some(invalid) = validate(what).first() {
            return permanent_failure(invalid.to_string());
        }
        if cancel.is_cancelled() {
            return Outcome::Cancelled { output: None };
        }
        let frames = match self.frames(dispatch, what) {
            Ok(frames) => frames,
            Err(error) => return permanent_failure(error),
        };
        let mut group = match Group::spawn(&self.settings, &dispatch.run.to_string()) {
            Ok(group) => group,
            Err(error) if crate::http::is_out_of_descriptors(&error) => {
                tracing::warn!("out of file descriptors: a run is released unsent; raise the open-file limit");
                return Outcome::Unsent;
            }
            Err(error) => return not_supervised(&error),
        };
        let mut output = Output::of(&mut group, &dispatch.secrets, live);

        let mut orders = group.orders.take();
        let ended = tokio::select! {
            biased;
            report = group.report() => Ended::ByItself(report),
            () = cancel.cancelled() => Ended::Cancelled,
            () = sleep(dispatch.timeout.into()) => Ended::TimedOut,
            never = async {
                tokio::join!(feed(&mut orders, &frames), output.read());
                pending::<Infallible>().await
            } => match never {},
        };
        group.orders = orders;
        match ended {
            Ended::ByItself(ref report) => {
                let _ = timeout(LINGER, output.read()).await;
                group.end().await;
                if let (Err(_), Some(owner)) = (report, self.settings.owner.clone()) {
                    let run = dispatch.run;
                    let _ = tokio::task::spawn_blocking(move || orphans::end_run(&owner, run)).await;
                }
            }
            Ended::Cancelled | Ended::TimedOut => group.stop(&mut output, self.settings.grace).await,
        }
        drop(group);
        let output = output.into_text();
        match ended {
            Ended::ByItself(report) => self.conclude(report, what, output),
            Ended::Cancelled => Outcome::Cancelled { output },
            Ended::TimedOut => Outcome::TimedOut { after: dispatch.timeout, output },
        }
    }

    /// Everything that supervisor and starter need. It may contain secrets.
    fn frames(&self, dispatch: &Dispatch, what: &ShellTarget) -> Result<Zeroizing<Vec<u8>>, String> {
        let program = self.policy.program(what)?;
        let payload = dispatch.body()?;
        let Isolation { user, .. } = &self.settings.isolation;
        let mut env: Vec<(String, Vec<u8>)> = Vec::new();
        let mut set = |name: &str, value: &[u8]| env.push((name.to_owned(), value.to_vec()));
        set("PATH", PATH.as_bytes());
        set("LANG", LANG.as_bytes());
        if let Some(home) = &self.home {
            set("HOME", &home.clone().into_vec());
        }
        if let Some(user) = user {
            set("USER", user.name.as_bytes());
            set("LOGNAME", user.name.as_bytes());
        }
        for (name, value) in filled_env(dispatch, what)? {
            set(name, &value);
        }
        if let Some(owner) = &self.settings.owner {
            set(orphans::OWNER, orphans::mark(owner).as_bytes());
        }
        for fact in dispatch.facts() {
            set(fact.variable, fact.value.to_string().as_bytes());
        }
        let args = match &what.command {
            Command::Argv(argv) => argv.iter().skip(1).cloned().collect(),
            Command::Script(script) => vec!["-c".to_owned(), script.clone()],
        };
        let named = self::program(&what.command);
        let order = Order {
            program: program.unwrap_or_else(|| named.into()),
            arg0: named.to_owned(),
            args,
            env,
            workdir: what.workdir.as_ref().map(PathBuf::from),
            isolation: self.settings.isolation.clone(),
            probe: false,
        };
        let charge = self.settings.charge(&format!("{}-{}", dispatch.run, dispatch.fence));
        frames(&charge, &order, payload.as_deref()).map_err(|error| format!("the command cannot be encoded: {error}"))
    }

    fn conclude(&self, report: io::Result<Report>, what: &ShellTarget, output: Option<String>) -> Outcome {
        let error = match report {
            Ok(Report::Ended { code: Some(0), .. } | Report::Ready) => return Outcome::Succeeded { output },
            Ok(Report::Ended { code: Some(code), .. }) => format!("exit code {code}"),
            Ok(Report::Ended { code: None, signal: Some(signal) }) => format!("killed by signal {signal}"),
            Ok(Report::Ended { code: None, signal: None }) => "the command ended without a status".to_owned(),
            Ok(Report::Refused { step, errno, what: why }) => return self.not_started(step, errno, &why, what),
            Err(error) => format!("the process that supervises the command ended early: {}", os_error(&error)),
        };
        Outcome::Failed { error, output, retry: Retry::Allowed }
    }

    /// A missing program will be missing on a retry too. A node that is out of processes, memory or file descriptors may
    /// recover.
    fn not_started(&self, step: Step, errno: i32, why: &str, what: &ShellTarget) -> Outcome {
        let error = io::Error::from_raw_os_error(errno);
        let retry = if is_temporary(&error) { Retry::Allowed } else { Retry::Never };
        let user = self.settings.isolation.user.as_ref().map_or("the node", |user| user.name.as_str());
        let why = match step {
            Step::Isolation => why.to_owned(),
            Step::Workdir => {
                let workdir = what.workdir.as_deref().unwrap_or_default();
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        format!("its workdir {workdir:?} may not be entered by the user of {user}")
                    }
                    _ => format!("its workdir {workdir:?} is not a folder on the node"),
                }
            }
            Step::Program => why_not_started(&error, what, user),
        };
        let error = format!("could not start {:?}: {why}", program(&what.command));
        Outcome::Failed { error, output: None, retry }
    }
}

/// The supervisor did not start: this node lacks something, which a retry may find.
fn not_supervised(error: &io::Error) -> Outcome {
    let error = format!("could not start the process that supervises the command: {}", os_error(error));
    Outcome::Failed { error, output: None, retry: Retry::Allowed }
}

fn is_temporary(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

fn frames(charge: &Charge, order: &Order, payload: Option<&[u8]>) -> io::Result<Zeroizing<Vec<u8>>> {
    let order = Zeroizing::new(frame(order)?);
    Ok(Zeroizing::new([&frame(charge)?, order.as_slice(), &payload_frame(payload)].concat()))
}

/// The variables of the job, with the values of their references.
fn filled_env<'w>(dispatch: &Dispatch, what: &'w ShellTarget) -> Result<Vec<(&'w str, Vec<u8>)>, String> {
    let fill = |(name, value): (&'w String, &String)| {
        let filled = dispatch.secrets.fill(value, Encoding::Plain)?;
        if filled.contains(&0) {
            return Err(format!("the variable {name} contains a NUL byte, which cannot be passed to a process"));
        }
        Ok((name.as_str(), filled.into_owned()))
    };
    what.env.iter().map(fill).collect()
}

enum Ended {
    ByItself(io::Result<Report>),
    Cancelled,
    TimedOut,
}

fn program(command: &Command) -> &str {
    match command {
        Command::Argv(argv) => argv.first().map_or("", String::as_str),
        Command::Script(_) => SH,
    }
}

/// Writes the orders. A supervisor that has ended does not read them.
async fn feed(orders: &mut Option<OwnedWriteHalf>, frames: &[u8]) {
    if let Some(orders) = orders {
        let _ = orders.write_all(frames).await;
    }
}

/// The kernel reports a missing program and a missing interpreter of a script with the same error.
fn why_not_started(error: &io::Error, what: &ShellTarget, user: &str) -> String {
    let (program, workdir) = (program(&what.command), what.workdir.as_deref());
    let path = Path::new(workdir.unwrap_or_default()).join(program);
    match error.kind() {
        io::ErrorKind::NotFound if !program.contains('/') => {
            format!("the command does not exist in PATH ({PATH}); write its whole path")
        }
        io::ErrorKind::NotFound if path.exists() => {
            "the interpreter that its first line names does not exist on the node".to_owned()
        }
        io::ErrorKind::NotFound => "the file does not exist on the node".to_owned(),
        io::ErrorKind::PermissionDenied => format!("it is not executable for the user of {user}"),
        _ if error.raw_os_error() == Some(ENOEXEC) => {
            "it is not a program; a script needs a first line such as #!/bin/sh".to_owned()
        }
        _ => os_error(error),
    }
}

/// The file is neither a binary nor a script with an interpreter.
const ENOEXEC: i32 = 8;

/// A command, its descendants and their supervisor. Dropping it makes the supervisor kill them all.
struct Group {
    child: Child,
    /// Closing it ends everything.
    orders: Option<OwnedWriteHalf>,
    reports: OwnedReadHalf,
    /// The part of a report that has arrived.
    line: Vec<u8>,
}

impl Group {
    fn spawn(settings: &ShellSettings, name: &str) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = tokio::process::Command::new(&settings.launcher);
        command.arg0("everytick").args([EXEC_COMMAND, SUPERVISE, name]).env_clear().env("PATH", PATH);
        if let Some(folder) = std::env::var_os(RUNTIME_DIR) {
            command.env(RUNTIME_DIR, folder);
        }
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Signals of a terminal are for the server.
        let child = command.process_group(0).spawn()?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { child, orders: Some(orders), reports, line: Vec::new() })
    }

    async fn send(&mut self, frames: &[u8]) {
        feed(&mut self.orders, frames).await;
    }

    /// Waits for the end of the command itself, or for the reason why it did not start. Cancel-safe.
    async fn report(&mut self) -> io::Result<Report> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                return Ok(serde_json::from_slice(&self.line[..end])?);
            }
            if self.line.len() > REPORT_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.reports.read_buf(&mut self.line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends TERM, and after `grace` kills the remaining processes. The command counts as ended when it has ended and its pipes
    /// are closed. Waits for the killed processes too, so that the next run does not start beside them.
    async fn stop(&mut self, output: &mut Output<'_>, grace: Duration) {
        if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = kill_process(pid, Signal::TERM); // fails only when it has ended
        }
        let _ = timeout(grace, async { tokio::join!(self.report(), output.read()) }).await;
        self.end().await;
        let _ = timeout(LINGER, output.read()).await;
    }

    /// Lets the supervisor kill what is left, and waits for it.
    async fn end(&mut self) {
        self.orders = None;
        let _ = timeout(KILL_WAIT, self.child.wait()).await;
    }
}

/// Both output streams of a command: streamed live and kept as one tail, without secrets.
struct Output<'a> {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Of stdout and stderr. Each stream is scrubbed alone: a value may be cut by the other stream's output.
    scrubbers: [Option<Scrubber>; 2],
    live: &'a dyn LiveOutput,
    tail: Tail,
}

impl<'a> Output<'a> {
    fn of(group: &mut Group, secrets: &Secrets, live: &'a dyn LiveOutput) -> Self {
        let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
        Self { stdout, stderr, scrubbers: [secrets.scrubber(), secrets.scrubber()], live, tail: Tail::default() }
    }

    /// Reads until both streams are closed. Cancel-safe: it may be dropped and called again without losing output.
    async fn read(&mut self) {
        let (mut out, mut err) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
        while self.stdout.is_some() || self.stderr.is_some() {
            let (stream, chunk) = tokio::select! {
                bytes = read_some(&mut self.stdout, &mut out), if self.stdout.is_some() => (Stream::Stdout, &out[..bytes]),
                bytes = read_some(&mut self.stderr, &mut err), if self.stderr.is_some() => (Stream::Stderr, &err[..bytes]),
            };
            // An empty chunk is the end of the stream.
            let scrubbed = self.scrubbers[stream.index()].as_mut().map(|scrubber| match chunk {
                [] => scrubber.finish(),
                chunk => scrubber.push(chunk),
            });
            self.keep(stream, scrubbed.as_deref().unwrap_or(chunk));
        }
    }

    fn keep(&mut self, stream: Stream, chunk: &[u8]) {
        if !chunk.is_empty() {
            self.live.push(stream, chunk);
            self.tail.push(chunk);
        }
    }

    /// The tail. A stream that is still open ends here.
    fn into_text(mut self) -> Option<String> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(rest) = self.scrubbers[stream.index()].as_mut().map(Scrubber::finish) {
                self.keep(stream, &rest);
            }
        }
        self.tail.into_text()
    }
}

/// Returns 0 at the end of the pipe, and closes it. An error counts as the end.
async fn read_some(pipe: &mut Option<impl AsyncRead + Unpin>, into: &mut [u8]) -> usize {
    let bytes = match pipe.as_mut() {
        Some(open) => open.read(into).await.unwrap_or(0),
        None => 0,
    };
    if bytes == 0 {
        *pipe = None;
    }
    bytes
}
