//! One attempt: runs the handler, extends the claim and sends the log meanwhile, and reports the result until it is answered.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    Context, Failure, RETRY_MAX, RETRY_MIN, Run,
    client::{Client, Refusal, Settle},
};

/// Heartbeat interval. The server ends a claim after three intervals without a heartbeat.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// How often the log is sent.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// How long a report is repeated. After that the claim is lost anyway.
const REPORT_FOR: Duration = Duration::from_secs(60);

pub(crate) async fn work<H, F>(client: Client, run: Run, handler: Arc<H>, grace: Duration)
where
    H: Fn(Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let run = Arc::new(run);
    let context = Context::new(run.clone());
    let over = CancellationToken::new();
    let kept = tokio::spawn(keep(client.clone(), context.clone(), over.clone()));
    // In its own task: a handler that panics fails only its own run.
    let mut at_work = tokio::spawn({
        let context = context.clone();
        async move { handler(context).await }
    });
    let ended = tokio::select! {
        biased;
        ended = &mut at_work => Some(ended),
        () = context.cancelled().cancelled() => within(&mut at_work, grace).await,
    };
    // Let a request in progress finish: it may carry a part of the log.
    over.cancel();
    let _ = kept.await;
    if context.cancelled().is_cancelled() {
        at_work.abort();
        tracing::info!(run = run.id, job = run.job, "stopped: the run was cancelled or the claim was lost");
        return;
    }
    let result = match ended {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(Failure::new(format!("the handler panicked: {error}"))),
        None => return,
    };
    if let Some(text) = context.take_log() {
        let _ = client.log(&run, &text).await;
    }
    report(&client, &run, &result).await;
}

async fn within<T>(task: &mut JoinHandle<T>, grace: Duration) -> Option<Result<T, tokio::task::JoinError>> {
    tokio::time::timeout(grace, task).await.ok()
}

/// Sends heartbeats and the log until the work has ended or the claim is lost.
async fn keep(client: Client, context: Context, over: CancellationToken) {
    let mut beat = tokio::time::interval(BEAT_EVERY);
    let mut log = tokio::time::interval(LOG_EVERY);
    // The first tick of an interval fires at once, and a new claim needs no heartbeat yet.
    beat.tick().await;
    loop {
        let lost = tokio::select! {
            biased;
            () = over.cancelled() => return,
            _ = beat.tick() => match client.beat(context.run()).await {
                Ok(beat) => beat.cancelled,
                Err(error) => is_lost(&error, context.run()),
            },
            _ = log.tick() => match context.take_log() {
                None => false,
                Some(text) => client.log(context.run(), &text).await.is_err_and(|error| is_lost(&error, context.run())),
            },
        };
        if lost {
            context.cancelled().cancel();
            return;
        }
    }
}

fn is_lost(error: &Refusal, run: &Run) -> bool {
    match error {
        Refusal::Stale => true,
        Refusal::Refused(_) | Refusal::Later(_) => {
            tracing::warn!(%error, run = run.id, "could not extend a claim or send its log");
            false
        }
    }
}

/// Repeats the report until it is answered. A repeated report gets the answer of the first.
async fn report(client: &Client, run: &Run, result: &Result<String, Failure>) {
    let settle = match result {
        Ok(output) => Settle {
            fence: run.fence,
            outcome: "succeeded",
            output: Some(output.as_str()).filter(|output| !output.is_empty()),
            error: None,
            retry: true,
        },
        Err(failure) => Settle {
            fence: run.fence,
            outcome: "failed",
            output: failure.output(),
            error: Some(failure.message()),
            retry: failure.may_retry(),
        },
    };
    let mut pause = RETRY_MIN;
    let heard = async {
        loop {
            match client.settle(run, &settle).await {
                Ok(()) => return,
                Err(Refusal::Later(_)) => {}
                Err(error @ (Refusal::Stale | Refusal::Refused(_))) => {
                    tracing::warn!(%error, run = run.id, job = run.job, "a result was refused");
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    };
    if tokio::time::timeout(REPORT_FOR, heard).await.is_err() {
        tracing::error!(run = run.id, job = run.job, "a result could not be reported; the run will be executed again");
    }
}
