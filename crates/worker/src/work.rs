//! One attempt: runs the handler, extends the claim and sends the log meanwhile, and reports the result until it is answered.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    Context, Event, Failure, RETRY_MAX, RETRY_MIN, Run,
    client::{Client, Refusal, Settle, Settled, now},
    context::LOG_BYTES_MAX,
    stop::Stop,
};

/// Heartbeat interval. The server ends a claim after three intervals without a heartbeat.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// How often the log is sent.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// How long a report is repeated while the server answers it with an error. After that the claim is lost anyway. While no
/// server answers, the report is repeated without limit: claims expire only when a server runs.
const REPORT_FOR: Duration = Duration::from_secs(60);

/// Why a claim ended before its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Cancelled,
    Lost,
}

pub(crate) async fn work<H, F>(client: Client, run: Run, handler: Arc<H>, stop: Stop)
where
    H: Fn(Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let (run, begun) = (Arc::new(run), now());
    let context = Context::new(run.clone(), stop.now.clone());
    let ended = CancellationToken::new();
    let kept = tokio::spawn(keep(client.clone(), context.clone(), ended.clone()));
    // In its own task: a handler that panics fails only its own run.
    let mut at_work = tokio::spawn({
        let context = context.clone();
        async move { handler(context).await }
    });
    let result = tokio::select! {
        biased;
        result = &mut at_work => Some(result),
        () = context.cancelled().cancelled() => within(&mut at_work, stop.grace).await,
        () = stop.now.cancelled() => within(&mut at_work, stop.grace).await,
    };
    at_work.abort();
    // Let a request in progress finish: it may carry a part of the log.
    ended.cancel();
    let (over, took) = (kept.await.ok().flatten(), now() - begun);
    match over {
        Some(Over::Cancelled) => return client.observer().tell(Event::Cancelled { run: &run, took }),
        Some(Over::Lost) => return client.observer().tell(Event::Lost { run: &run, took }),
        None => {}
    }
    let result = match result {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(Failure::new(format!("the handler panicked: {error}"))),
        None => Err(Failure::new("the worker was stopped, and the handler did not end in time")),
    };
    let error = result.as_ref().err().map(Failure::message);
    match report(&client, &context, &result, &stop).await {
        Ok(Settled { state, due_at }) => {
            client.observer().tell(Event::Settled { run: &run, state: &state, due_at: &due_at, error, took });
        }
        Err(error) => client.observer().tell(Event::NotReported { run: &run, error: &error.to_string() }),
    }
}

async fn within<T>(task: &mut JoinHandle<T>, grace: Duration) -> Option<Result<T, tokio::task::JoinError>> {
    tokio::time::timeout(grace, task).await.ok()
}

/// Sends heartbeats and the log until the work or the claim has ended.
async fn keep(client: Client, context: Context, ended: CancellationToken) -> Option<Over> {
    let mut beat = tokio::time::interval(BEAT_EVERY);
    let mut log = tokio::time::interval(LOG_EVERY);
    // The first tick of an interval fires at once, and a new claim needs no heartbeat yet.
    beat.tick().await;
    loop {
        let over = tokio::select! {
            biased;
            () = ended.cancelled() => return None,
            _ = beat.tick() => match client.beat(context.run()).await {
                Ok(beat) => beat.cancelled.then_some(Over::Cancelled),
                Err(error) => lost(&client, &error),
            },
            _ = log.tick() => send_log(&client, &context).await.err().and_then(|error| lost(&client, &error)),
        };
        if over.is_some() {
            context.cancelled().cancel();
            return over;
        }
    }
}

/// Sends the log that has not been sent. Text that the server does not confirm is sent again the next time: a part
/// may arrive twice, but none is lost.
async fn send_log(client: &Client, context: &Context) -> Result<(), Refusal> {
    let Some(log) = context.take_log() else { return Ok(()) };
    let sent = client.log(context.run(), &log).await;
    if let Err(Refusal::Unreachable { .. } | Refusal::Later(_)) = &sent {
        context.put_back_log(log);
    }
    sent
}

fn lost(client: &Client, error: &Refusal) -> Option<Over> {
    match error {
        Refusal::Stale => Some(Over::Lost),
        Refusal::Refused(error) => {
            client.observer().tell(Event::Refused { error });
            None
        }
        // The client reports that the server does not answer.
        Refusal::Unreachable { .. } | Refusal::Later(_) => None,
    }
}

/// Sends the rest of the log and the report until the report is answered. A repeated report gets the answer of the first.
async fn report(
    client: &Client,
    context: &Context,
    result: &Result<String, Failure>,
    stop: &Stop,
) -> Result<Settled, Refusal> {
    let mut settle = settle_of(context.run(), result);
    // The server limits the size of a request. The log counts what is missing.
    if let Some(output) = settle.output.take_if(|output| output.len() > LOG_BYTES_MAX) {
        context.log(output);
    }
    let (mut pause, mut refused_for) = (RETRY_MIN, Duration::ZERO);
    let patience_ended = stop.patience_ended(REPORT_FOR);
    tokio::pin!(patience_ended);
    loop {
        let answer = match send_log(client, context).await {
            Err(error @ (Refusal::Unreachable { .. } | Refusal::Later(_))) => Err(error),
            // A log that was refused does not change the result.
            Ok(()) | Err(Refusal::Stale | Refusal::Refused(_)) => client.settle(context.run(), &settle).await,
        };
        let error = match answer {
            Err(error @ (Refusal::Unreachable { .. } | Refusal::Later(_))) => error,
            answer => return answer,
        };
        if matches!(error, Refusal::Later(_)) {
            refused_for += pause;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut patience_ended => return Err(error),
        }
        if refused_for > REPORT_FOR {
            return Err(error);
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

fn settle_of<'a>(run: &Run, result: &'a Result<String, Failure>) -> Settle<'a> {
    match result {
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
    }
}
