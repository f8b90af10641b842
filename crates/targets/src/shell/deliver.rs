//! Runs a command on the node, in a clean environment and its own process group. The group is killed when the delivery
//! ends, for every cause of the end. A process that remained could overlap the next run.

use std::{
    convert::Infallible,
    ffi::OsString,
    future::pending,
    io,
    os::unix::{ffi::OsStringExt as _, process::ExitStatusExt},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use everytick_domain::{
    secret::{Encoding, Scrubber},
    target::{Command, Outcome, Retry, ShellTarget},
    wrong_input::os_error,
};
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{orphans, validate::validate};
use crate::{Dispatch, LiveOutput, Secrets, Stream, permanent_failure, tail::Tail};

/// Time between TERM and KILL.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// How long a descendant may continue to write after the command itself has ended.
const LINGER: Duration = Duration::from_millis(500);
/// How long to wait for a killed command to end. The delivery does not wait longer for a command that is stuck in the kernel.
const KILL_WAIT: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 16 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SH: &str = "/bin/sh";
const SIGTERM: i32 = 15;

/// The operator's settings for commands.
#[derive(Clone, Debug)]
pub struct ShellSettings {
    /// The time between TERM and KILL, normally [`TERM_GRACE`].
    pub grace: Duration,
    /// The installation that the commands belong to. Commands carry this mark, by which [`super::end_orphans`] finds those
    /// that outlived their server.
    pub owner: Option<String>,
}

/// Commands get only `HOME` from the node's environment, because its settings may contain passwords.
#[derive(Debug)]
pub(super) struct Runner {
    settings: ShellSettings,
    home: Option<OsString>,
}

impl Runner {
    pub(super) fn new(settings: ShellSettings) -> Self {
        Self { settings, home: std::env::var_os("HOME") }
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
        let filled = env(dispatch, what).and_then(|env| Ok((env, dispatch.body()?)));
        let (env, payload) = match filled {
            Ok(filled) => filled,
            Err(error) => return permanent_failure(error),
        };
        let mut group = match self.spawn(dispatch, what, env) {
            Ok(group) => group,
            Err(error) if crate::http::is_out_of_descriptors(&error) => {
                tracing::warn!("out of file descriptors: a run is released unsent; raise the open-file limit");
                return Outcome::Unsent;
            }
            Err(error) => return not_started(&error, what),
        };
        let mut output = Output::of(&mut group, &dispatch.secrets, live);

        let payload = payload.as_deref().unwrap_or_default();
        let stdin = group.child.stdin().take();
        let ended = tokio::select! {
            biased;
            status = group.exited() => Ended::ByItself(status),
            () = cancel.cancelled() => Ended::Cancelled,
            () = sleep(dispatch.timeout.into()) => Ended::TimedOut,
            never = async { tokio::join!(feed(stdin, payload), output.read()); pending::<Infallible>().await } => match never {},
        };
        match ended {
            Ended::ByItself(_) => drop(timeout(LINGER, output.read()).await),
            Ended::Cancelled | Ended::TimedOut => group.stop(&mut output, self.settings.grace).await,
        }
        drop(group);
        let output = output.into_text();
        match ended {
            Ended::ByItself(status) => conclude(status, output),
            Ended::Cancelled => Outcome::Cancelled { output },
            Ended::TimedOut => Outcome::TimedOut { after: dispatch.timeout, output },
        }
    }

    fn spawn(&self, dispatch: &Dispatch, what: &ShellTarget, env: Vec<(&str, OsString)>) -> io::Result<Group> {
        let mut command = CommandWrap::with_new(program(&what.command), |command| {
            match &what.command {
                Command::Argv(argv) => command.args(argv.iter().skip(1)),
                Command::Script(script) => command.arg("-c").arg(script),
            };
            command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8");
            if let Some(home) = &self.home {
                command.env("HOME", home);
            }
            command.envs(env);
            if let Some(owner) = &self.settings.owner {
                command.env(orphans::OWNER, orphans::mark(owner));
            }
            command.envs(dispatch.facts().map(|fact| (fact.variable, fact.value.to_string())));
            if let Some(workdir) = &what.workdir {
                command.current_dir(workdir);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        });
        command.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
        Ok(Group { child: command.spawn()? })
    }
}

/// The variables of the command, with the values of their references.
fn env<'w>(dispatch: &Dispatch, what: &'w ShellTarget) -> Result<Vec<(&'w str, OsString)>, String> {
    let fill = |(name, value): (&'w String, &String)| {
        let filled = dispatch.secrets.fill(value, Encoding::Plain)?;
        if filled.contains(&0) {
            return Err(format!("the variable {name} contains a NUL byte, which cannot be passed to a process"));
        }
        Ok((name.as_str(), OsString::from_vec(filled.into_owned())))
    };
    what.env.iter().map(fill).collect()
}

enum Ended {
    ByItself(io::Result<ExitStatus>),
    Cancelled,
    TimedOut,
}

fn program(command: &Command) -> &str {
    match command {
        Command::Argv(argv) => argv.first().map_or("", String::as_str),
        Command::Script(_) => SH,
    }
}

/// Writes the payload and closes the pipe. A command that does not read it breaks the pipe, which does not fail the run.
async fn feed(stdin: Option<ChildStdin>, payload: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(payload).await;
    }
}

fn conclude(status: io::Result<ExitStatus>, output: Option<String>) -> Outcome {
    let error = match status {
        Ok(status) if status.success() => return Outcome::Succeeded { output },
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => status.to_string(),
        },
        Err(error) => format!("could not wait for the command: {error}"),
    };
    Outcome::Failed { error, output, retry: Retry::Allowed }
}

/// A missing program will be missing on a retry too. A node that is out of processes, memory or file descriptors may recover.
fn not_started(error: &io::Error, what: &ShellTarget) -> Outcome {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let is_temporary = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE));
    let error = format!("could not start {:?}: {}", program(&what.command), why_not_started(error, what));
    Outcome::Failed { error, output: None, retry: if is_temporary { Retry::Allowed } else { Retry::Never } }
}

/// The kernel reports a missing folder, a missing program and a missing interpreter of a script with the same error.
fn why_not_started(error: &io::Error, what: &ShellTarget) -> String {
    let (program, workdir) = (program(&what.command), what.workdir.as_deref());
    if let Some(workdir) = workdir.filter(|workdir| !Path::new(workdir).is_dir()) {
        return format!("its workdir {workdir:?} is not a folder on the node");
    }
    let path = Path::new(workdir.unwrap_or_default()).join(program);
    match error.kind() {
        io::ErrorKind::NotFound if !program.contains('/') => {
            format!("the command does not exist in PATH ({PATH}); write its whole path")
        }
        io::ErrorKind::NotFound if path.exists() => {
            "the interpreter that its first line names does not exist on the node".to_owned()
        }
        io::ErrorKind::NotFound => "the file does not exist on the node".to_owned(),
        io::ErrorKind::PermissionDenied => "it is not executable for the user of the node".to_owned(),
        _ if error.raw_os_error() == Some(ENOEXEC) => {
            "it is not a program; a script needs a first line such as #!/bin/sh".to_owned()
        }
        _ => os_error(error),
    }
}

/// The file is neither a binary nor a script with an interpreter.
const ENOEXEC: i32 = 8;

/// A command and its descendants. Dropping it kills them all; `kill_on_drop` alone would kill only the command and leave its
/// children.
struct Group {
    child: Box<dyn ChildWrapper>,
}

impl Group {
    /// Waits until the command itself has ended. The wrapper's own wait covers the whole group: if this process is process 1
    /// and adopts orphans, a daemon left behind would block it forever.
    async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.inner_mut().wait().await
    }

    /// Sends TERM, and after `grace` sends KILL to the remaining processes. The group counts as ended when the command has
    /// ended and its pipes are closed. Waits for the killed command too, so that the next run does not start beside it.
    async fn stop(&mut self, output: &mut Output<'_>, grace: Duration) {
        let _ = self.child.signal(SIGTERM); // fails only when no process is left
        let _ = timeout(grace, async { tokio::join!(self.exited(), output.read()) }).await;
        self.kill();
        let _ = timeout(KILL_WAIT, self.exited()).await;
        let _ = timeout(LINGER, output.read()).await;
    }

    fn kill(&mut self) {
        let _ = self.child.start_kill(); // fails only when no process is left
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
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
        let (stdout, stderr) = (group.child.stdout().take(), group.child.stderr().take());
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
