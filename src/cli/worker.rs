//! `everytick worker`: runs a command for each run of a queue, with the payload on stdin and the run in `EVERYTICK_*`
//! variables. The worker crate claims runs, sends heartbeats and reports results.

use std::{
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use everytick_worker::{Context, Failure, Worker};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick worker --queue emails -- ./send-mail
  everytick worker --queue reports --concurrency 4 -- sh -c 'jq -r .report | ./render'

The worker starts the command once per run, with the payload on stdin. The command inherits the worker's environment, with
EVERYTICK_RUN, EVERYTICK_JOB, EVERYTICK_QUEUE, EVERYTICK_SCHEDULED_AT, EVERYTICK_ATTEMPT, EVERYTICK_FENCE, EVERYTICK_CAUSE and
EVERYTICK_WORKER added. Its stdout and stderr become the log and output of the run. An exit status other than 0 is a failure,
which is retried by the rules of the job. If the run is cancelled or lost, the command's process group gets SIGTERM, then SIGKILL.

SIGTERM or SIGINT stops the worker: it sends no further claim request. An open request waits up to 10 seconds and may still
return runs. These runs and the runs in progress may end. A second signal ends them.";

/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// Limit of the output tail, equal to the server's limit.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Args)]
pub(crate) struct WorkerFlags {
    /// Claim runs from this queue
    #[arg(long, value_name = "NAME", value_parser = queue)]
    queue: String,
    /// Run at most this many commands at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    concurrency: u16,
    /// Name this worker [default: host name and process id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

fn queue(name: &str) -> Result<String, String> {
    everytick_domain::queue::check_queue(name).map(|()| name.to_owned())
}

impl WorkerFlags {
    pub(crate) async fn run(self, server: &str) -> anyhow::Result<()> {
        let mut worker =
            Worker::new(server, &self.queue)?.concurrency(self.concurrency.into()).stop_grace(TERM_GRACE * 2);
        if let Some(name) = &self.name {
            worker = worker.named(name);
        }
        let (stop, stop_now) = (CancellationToken::new(), CancellationToken::new());
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let signals = {
            let (stop, stop_now) = (stop.clone(), stop_now.clone());
            async move {
                for token in [stop, stop_now] {
                    tokio::select! {
                        _ = term.recv() => {}
                        _ = int.recv() => {}
                    }
                    token.cancel();
                }
                std::future::pending::<()>().await;
            }
        };
        let command: Arc<[String]> = self.command.into();
        let queue: Arc<str> = self.queue.into();
        let name: Arc<str> = worker.name().into();
        let about = move || About { command: command.clone(), queue: queue.clone(), worker: name.clone() };
        let handler = move |context: Context| run(about(), context, stop_now.clone());
        tokio::select! {
            () = worker.run(handler, stop) => Ok(()),
            () = signals => Ok(()),
        }
    }
}

/// The data that all runs of this worker share.
struct About {
    command: Arc<[String]>,
    queue: Arc<str>,
    worker: Arc<str>,
}

async fn run(about: About, context: Context, stop_now: CancellationToken) -> Result<String, Failure> {
    let (program, arguments) = about.command.split_first().ok_or_else(|| Failure::for_good("there is no command"))?;
    let run = context.run();
    let mut child = Command::new(program)
        .args(arguments)
        .env("EVERYTICK_RUN", &run.id)
        .env("EVERYTICK_JOB", &run.job)
        .env("EVERYTICK_QUEUE", &*about.queue)
        .env("EVERYTICK_WORKER", &*about.worker)
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
        .map_err(|error| Failure::new(format!("could not start {program:?}: {error}")))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let ended = attend(&mut child, &context);
    tokio::pin!(ended);
    let (status, output) = tokio::select! {
        biased;
        ended = &mut ended => ended,
        () = stopped(&context, &stop_now) => {
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
    if status.success() { Ok(output) } else { Err(Failure::new(status.to_string()).with_output(output)) }
}

async fn stopped(context: &Context, stop_now: &CancellationToken) {
    tokio::select! {
        () = context.cancelled().cancelled() => {}
        () = stop_now.cancelled() => {}
    }
}

fn end(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The group may have ended by now.
        let _ = kill_process_group(group, signal);
    }
}

/// Writes the payload to the command, forwards its output to the log, and waits for its end.
async fn attend(child: &mut Child, context: &Context) -> anyhow::Result<(ExitStatus, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command may ignore its stdin, so a failed write is not an error.
            let _ = stdin.write_all(context.payload_text().as_bytes()).await;
        }
    };
    let output = Mutex::new(Vec::new());
    let ((), out, err) = tokio::join!(feed, drain(stdout, context, &output), drain(stderr, context, &output));
    out.and(err).context("could not read its output")?;
    let status = child.wait().await.context("could not wait for its end")?;
    Ok((status, String::from_utf8_lossy(&output.into_inner().unwrap_or_else(PoisonError::into_inner)).into_owned()))
}

async fn drain(
    from: Option<impl AsyncRead + Unpin>,
    context: &Context,
    output: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut chunk = vec![0; 8 * 1024];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        context.log(&String::from_utf8_lossy(&chunk[..read]));
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        output.extend_from_slice(&chunk[..read]);
        let excess = output.len().saturating_sub(OUTPUT_BYTES_MAX);
        output.drain(..excess);
    }
}
