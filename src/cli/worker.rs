//! Works off a queue by running a command for each run: the payload on stdin, the run in `EVERYTICK_*` variables. The work
//! of asking, keeping and reporting is the worker crate's.

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

For each run the command is started with the run's payload on stdin and EVERYTICK_RUN, EVERYTICK_JOB, EVERYTICK_QUEUE,
EVERYTICK_SCHEDULED_AT, EVERYTICK_ATTEMPT, EVERYTICK_FENCE, EVERYTICK_CAUSE and EVERYTICK_WORKER in its environment, which it has
of the worker. What it prints is the run's log and output; an exit status but 0 is a failure, which is tried again as the job
says. A run that is cancelled or lost ends the command: TERM to its process group, then KILL.

TERM or INT: nothing more is asked for. What the request under way still brings, which waits up to ten seconds for
work, and what is in progress may end. A second one ends them.";

/// Between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// What is kept of what a command prints, as the server keeps it.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Args)]
pub(crate) struct WorkerFlags {
    /// The queue to take runs from
    #[arg(long, value_name = "NAME", value_parser = queue)]
    queue: String,
    /// How many commands run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    concurrency: u16,
    /// What the worker calls itself [default: host and process]
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

/// What every run of this worker shares.
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
    .map_err(|error| Failure::new(format!("could not attend to {program:?}: {error:#}")))?;
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
        // It may have ended meanwhile.
        let _ = kill_process_group(group, signal);
    }
}

/// Feeds the command its payload, passes on what it prints, and waits for its end.
async fn attend(child: &mut Child, context: &Context) -> anyhow::Result<(ExitStatus, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read it does not want it.
            let _ = stdin.write_all(context.payload_text().as_bytes()).await;
        }
    };
    let output = Mutex::new(Vec::new());
    let ((), out, err) = tokio::join!(feed, drain(stdout, context, &output), drain(stderr, context, &output));
    out.and(err).context("could not read what it prints")?;
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
