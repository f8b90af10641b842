//! `everytick worker`: runs a command for each run of a queue, with the payload on stdin and the run in `EVERYTICK_*`
//! variables. The worker crate claims runs, sends heartbeats and reports results. Everything that the command prints is the log
//! of the run, and the log becomes its output.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use everytick_domain::wrong_input::os_error;
use everytick_worker::{Context, Event, Failure, Server, Worker};
use rustix::{
    fs::{Access, access},
    process::{Pid, Signal, kill_process_group},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    credentials::{Credential, SECRET_VARIABLES},
    failure, logging,
    output::take_text,
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick worker --queue emails -- ./send-mail
  everytick worker --queue reports --concurrency 4 -- sh -c 'jq -r .report | ./render'

The worker starts the command once per run, with the payload on stdin. The command inherits the worker's environment, with
EVERYTICK_RUN, EVERYTICK_JOB, EVERYTICK_QUEUE, EVERYTICK_SCHEDULED_AT, EVERYTICK_ATTEMPT, EVERYTICK_FENCE, EVERYTICK_CAUSE and
EVERYTICK_WORKER added. Its stdout and stderr become the log and output of the run. An exit status other than 0 is a failure,
which is retried by the rules of the job. If the run is cancelled or lost, the command's process group gets SIGTERM, then SIGKILL.

The worker writes a line to stderr when it starts, waits for the server, claims a run, finishes it, and stops.

SIGTERM or Ctrl-C stops the worker: it claims no more runs, and waits for the commands in progress. A second signal ends them:
each process group gets SIGTERM, then SIGKILL, and its run fails.";

/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// How much longer the worker waits for a command whose group got SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct WorkerFlags {
    /// Claim runs from this queue
    #[arg(long, value_name = "NAME", value_parser = queue)]
    queue: String,
    /// Run at most this many commands at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::number::within::<u16>(1..=1_000))]
    concurrency: u16,
    /// Name this worker in runs and attempts [default: host and process, such as web1-4711]
    #[arg(long, value_name = "NAME", value_parser = worker_name)]
    name: Option<String>,
    /// Write nothing to stderr but errors that end the worker
    #[arg(long, short)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

fn queue(name: &str) -> Result<String, String> {
    everytick_domain::queue::check_queue(name).map(|()| name.to_owned())
}

fn worker_name(name: &str) -> Result<String, String> {
    everytick_domain::queue::check_worker(name).map(|()| name.to_owned())
}

impl WorkerFlags {
    pub(crate) async fn run(self, server: Server, credential: &Credential) -> anyhow::Result<()> {
        // Checked first: a worker that cannot start its command must not claim runs.
        check_command(&self.command)?;
        logging::start_lines()?;
        let (stop, stop_now) = (CancellationToken::new(), CancellationToken::new());
        let mut worker = Worker::of(server, &self.queue)
            .map_err(|error| failure::Failure::usage(error.to_string()))?
            .concurrency(self.concurrency.into())
            .stop_grace(TERM_GRACE + KILL_GRACE)
            .stop_now(stop_now.clone());
        if let Some(token) = credential.worker_token() {
            worker = worker.with_token(token);
        }
        if let Some(name) = &self.name {
            worker = worker.named(name);
        }
        worker = if self.quiet { worker.on_event(|_| {}) } else { worker.on_event(print) };
        let settings =
            RunSettings { command: self.command.into(), queue: self.queue.into(), worker: worker.name().into() };
        let handler = move |context: Context| run(settings.clone(), context);
        let worked = tokio::select! {
            worked = worker.run(handler, stop.clone()) => worked.map_err(anyhow::Error::from),
            signals = cancel_at_signals([stop, stop_now]) => signals,
        };
        logging::flush();
        worked
    }
}

fn print(event: &Event<'_>) {
    let hint = match event {
        Event::Stopping { runs: 1.. } => "; a second signal ends them",
        _ => "",
    };
    logging::line(&format!("{event}{hint}"));
}

/// Cancels one token at each SIGTERM or SIGINT, in order. Returns only on an error.
async fn cancel_at_signals(tokens: [CancellationToken; 2]) -> anyhow::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    for token in tokens {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        token.cancel();
    }
    std::future::pending().await
}

/// Checks that the command can be started: a path must be an executable file, a name must be found in `PATH`.
fn check_command(command: &[String]) -> Result<(), failure::Failure> {
    let program = command.first().map(String::as_str).unwrap_or_default();
    let is_executable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let wrong = |message: String| Err(failure::Failure::usage(format!("CMD: {program:?} {message}")));
    if program.contains('/') {
        let path = PathBuf::from(program);
        return match () {
            () if is_executable(&path) => Ok(()),
            () if !path.exists() => wrong("does not exist; write the path of a command".to_owned()),
            () if !path.is_file() => wrong("is not a file; write the path of a command".to_owned()),
            () => wrong(format!("is not executable; run `chmod +x {program}`")),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&folders).any(|folder| is_executable(&folder.join(program))) {
        return Ok(());
    }
    let hint = if Path::new(program).is_file() {
        format!("write ./{program}")
    } else {
        "write a command, or the path of one".to_owned()
    };
    wrong(format!("is not in PATH; {hint}"))
}

/// The data that all runs of this worker share.
#[derive(Clone)]
struct RunSettings {
    command: Arc<[String]>,
    queue: Arc<str>,
    worker: Arc<str>,
}

async fn run(settings: RunSettings, context: Context) -> Result<String, Failure> {
    let (program, arguments) =
        settings.command.split_first().ok_or_else(|| Failure::for_good("there is no command"))?;
    let run = context.run();
    let mut command = Command::new(program);
    // Without the token, the command cannot act as this worker.
    for variable in SECRET_VARIABLES {
        command.env_remove(variable);
    }
    let mut child = command
        .args(arguments)
        .env("EVERYTICK_RUN", &run.id)
        .env("EVERYTICK_JOB", &run.job)
        .env("EVERYTICK_QUEUE", &*settings.queue)
        .env("EVERYTICK_WORKER", &*settings.worker)
        .env("EVERYTICK_SCHEDULED_AT", &run.scheduled_at)
        .env("EVERYTICK_ATTEMPT", run.attempt.to_string())
        .env("EVERYTICK_FENCE", run.fence.to_string())
        .env("EVERYTICK_CAUSE", &run.cause)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::new(format!("could not start {program:?}: {}", os_error(&error))))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let ended = wait_for_command(&mut child, &context);
    tokio::pin!(ended);
    let status = tokio::select! {
        biased;
        ended = &mut ended => ended,
        () = stopped(&context) => {
            end(group, Signal::TERM);
            match tokio::time::timeout(TERM_GRACE, &mut ended).await {
                Ok(ended) => ended,
                Err(_) => {
                    end(group, Signal::KILL);
                    ended.await
                }
            }
        }
    }
    .map_err(|error| Failure::new(format!("lost the process of {program:?}: {error:#}")))?;
    match status {
        status if status.success() => Ok(String::new()),
        status if context.stopping().is_cancelled() => Err(Failure::new(format!("the worker was stopped ({status})"))),
        status => Err(Failure::new(status.to_string())),
    }
}

/// Resolves when the command must end: the run was cancelled, the claim was lost, or the worker ends its runs.
async fn stopped(context: &Context) {
    tokio::select! {
        () = context.cancelled().cancelled() => {}
        () = context.stopping().cancelled() => {}
    }
}

fn end(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The group may have ended by now.
        let _ = kill_process_group(group, signal);
    }
}

/// Writes the payload to the command, sends its output to the log, and waits for its end.
async fn wait_for_command(child: &mut Child, context: &Context) -> anyhow::Result<ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command may ignore its stdin, so a failed write is not an error.
            let _ = stdin.write_all(context.payload_text().as_bytes()).await;
        }
    };
    let ((), out, err) = tokio::join!(feed, drain(stdout, context), drain(stderr, context));
    out.and(err).context("could not read its output")?;
    child.wait().await.context("could not wait for its end")
}

async fn drain(from: Option<impl AsyncRead + Unpin>, context: &Context) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let (mut chunk, mut bytes) = (vec![0; 8 * 1024], Vec::new());
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            context.log(&String::from_utf8_lossy(&bytes));
            return Ok(());
        }
        bytes.extend_from_slice(&chunk[..read]);
        context.log(&take_text(&mut bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_cannot_be_started_is_refused_with_the_remedy() {
        let refused = |program: &str| check_command(&[program.to_owned()]).unwrap_err().to_string();
        assert_eq!(refused("./no-such"), "CMD: \"./no-such\" does not exist; write the path of a command");
        assert!(refused("/").contains("is not a file"));
        assert!(refused("./Cargo.toml").contains("chmod +x ./Cargo.toml"));
        assert!(refused("no-such-command").contains("is not in PATH"));
        assert!(refused("Cargo.toml").ends_with("write ./Cargo.toml"));
        check_command(&["sh".to_owned()]).unwrap();
        check_command(&["/bin/sh".to_owned()]).unwrap();
    }
}
