//! Runs a command of the node's own machine in a clean environment and a process group of its own. The group ends with the
//! delivery, whichever way that ends: what a command leaves running in it would overlap the next run unseen.

use std::{
    convert::Infallible,
    ffi::OsString,
    future::pending,
    io,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use everytick_domain::target::{Command, Outcome, Retry, ShellTarget};
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{Dispatch, LiveOutput, Stream, hopeless, tail::Tail, validate::validate_shell};

/// Between TERM and KILL.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// How long a descendant may go on writing after the command itself has ended.
const LINGER: Duration = Duration::from_millis(500);
/// How long a killed command may take to be gone. One stuck in the kernel is left to the system.
const KILL_WAIT: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 16 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SH: &str = "/bin/sh";
const SIGTERM: i32 = 15;

/// Commands see nothing of the node's environment but `HOME`; its settings may hold passwords.
#[derive(Debug)]
pub struct Shell {
    grace: Duration,
    home: Option<OsString>,
    /// The installation whose commands these are.
    owner: Option<String>,
}

impl Shell {
    /// `grace` is what a command gets between TERM and KILL, [`TERM_GRACE`] as a rule.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { grace, home: std::env::var_os("HOME"), owner: None }
    }

    /// Commands carry this mark, by which [`crate::end_orphans`] finds those that outlived their server.
    #[must_use]
    pub fn owned_by(self, owner: String) -> Self {
        Self { owner: Some(owner), ..self }
    }

    pub(crate) async fn deliver(
        &self,
        dispatch: &Dispatch,
        what: &ShellTarget,
        live: &dyn LiveOutput,
        cancel: &CancellationToken,
    ) -> Outcome {
        if let Some(invalid) = validate_shell(what).first() {
            return hopeless(invalid.to_string());
        }
        if cancel.is_cancelled() {
            return Outcome::Cancelled { output: None };
        }
        let mut group = match self.spawn(dispatch, what) {
            Ok(group) => group,
            Err(error) if crate::webhook::is_out_of_descriptors(&error) => {
                tracing::warn!("out of file descriptors: a run is handed back unsent; raise the open-file limit");
                return Outcome::Unsent;
            }
            Err(error) => return not_started(&error, what),
        };
        let mut output = Output::of(&mut group, live);

        let payload = dispatch.payload.as_deref().unwrap_or_default();
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
            Ended::Cancelled | Ended::TimedOut => group.stop(&mut output, self.grace).await,
        }
        drop(group);
        let output = output.tail.into_text();
        match ended {
            Ended::ByItself(status) => conclude(status, output),
            Ended::Cancelled => Outcome::Cancelled { output },
            Ended::TimedOut => Outcome::TimedOut { after: dispatch.timeout, output },
        }
    }

    fn spawn(&self, dispatch: &Dispatch, what: &ShellTarget) -> io::Result<Group> {
        let mut command = CommandWrap::with_new(program(&what.command), |command| {
            match &what.command {
                Command::Argv(argv) => command.args(argv.iter().skip(1)),
                Command::Script(script) => command.arg("-c").arg(script),
            };
            command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8");
            if let Some(home) = &self.home {
                command.env("HOME", home);
            }
            command.envs(&what.env);
            if let Some(owner) = &self.owner {
                command.env(crate::orphans::OWNER, crate::orphans::mark(owner));
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

/// The payload goes in and the pipe is closed. A command that does not read it has broken the pipe, not the run.
async fn feed(stdin: Option<ChildStdin>, payload: &str) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(payload.as_bytes()).await;
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

/// A program that is not there will not be there the next time either; a node that is out of processes or files may recover.
fn not_started(error: &io::Error, what: &ShellTarget) -> Outcome {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let short = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE));
    let place = what.workdir.as_ref().map(|workdir| format!(" in {workdir:?}")).unwrap_or_default();
    let error = format!("could not start {:?}{place}: {error}", program(&what.command));
    Outcome::Failed { error, output: None, retry: if short { Retry::Allowed } else { Retry::Never } }
}

/// A command and its descendants. Dropping it kills them all; `kill_on_drop` alone would kill the command and reap it, but
/// leave its children.
struct Group {
    child: Box<dyn ChildWrapper>,
}

impl Group {
    /// The command itself has ended. The wrapper's own wait is for the whole group: where we are process 1 and adopt every
    /// orphan, a daemon left behind would hold it for ever.
    async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.inner_mut().wait().await
    }

    /// TERM, and KILL for what is left after `grace`. The group counts as gone when the command is and its pipes are closed.
    /// Waits for the killed too, so that the next run does not start beside them.
    async fn stop(&mut self, output: &mut Output<'_>, grace: Duration) {
        let _ = self.child.signal(SIGTERM); // fails only when nobody is left
        let _ = timeout(grace, async { tokio::join!(self.exited(), output.read()) }).await;
        self.kill();
        let _ = timeout(KILL_WAIT, self.exited()).await;
        let _ = timeout(LINGER, output.read()).await;
    }

    fn kill(&mut self) {
        let _ = self.child.start_kill(); // fails only when nobody is left
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Both streams of a command, told live and kept as one tail.
struct Output<'a> {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    live: &'a dyn LiveOutput,
    tail: Tail,
}

impl<'a> Output<'a> {
    fn of(group: &mut Group, live: &'a dyn LiveOutput) -> Self {
        let (stdout, stderr) = (group.child.stdout().take(), group.child.stderr().take());
        Self { stdout, stderr, live, tail: Tail::default() }
    }

    /// Reads until both streams are closed. May be dropped and called again: nothing read is lost.
    async fn read(&mut self) {
        let (mut out, mut err) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
        while self.stdout.is_some() || self.stderr.is_some() {
            let (stream, chunk) = tokio::select! {
                bytes = read_some(&mut self.stdout, &mut out), if self.stdout.is_some() => (Stream::Stdout, &out[..bytes]),
                bytes = read_some(&mut self.stderr, &mut err), if self.stderr.is_some() => (Stream::Stderr, &err[..bytes]),
            };
            if !chunk.is_empty() {
                self.live.push(stream, chunk);
                self.tail.push(chunk);
            }
        }
    }
}

/// Zero bytes at the end, when the pipe is also given up. An error of a pipe is its end.
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
