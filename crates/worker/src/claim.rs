//! The loop that claims runs. A claim request waits at the server. When the worker stops, it ends that wait. If the
//! answer contains runs nevertheless, it returns them.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{
    Context, Event, Failure, RETRY_MAX, RETRY_MIN, Run, Worker, WorkerError,
    client::{Client, Refusal},
    stop::Stop,
    work::work,
};

/// How long a claim waits at the server.
const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// The server's limit for one claim.
const CLAIM_RUNS_MAX: usize = 100;
/// How often a stopping worker asks the server to end the wait of its claim. The first such request may arrive before the claim.
const LEAVE_EVERY: Duration = Duration::from_millis(250);
/// How long a stopping worker waits for the answer to its claim. Behind a proxy, the request that ends the wait may reach another
/// node, and the claim then waits its full time.
const ANSWER_FOR: Duration = Duration::from_secs(15);
/// How long the worker tries to return a run. If it fails, the run waits again when its claim expires, after 30 s.
const RETURN_FOR: Duration = Duration::from_secs(15);

impl Worker {
    /// Claims runs and starts them in `runs`, until the worker stops. Returns an error if the server refuses the first request.
    pub(crate) async fn claim_until<H, F>(
        &self,
        handler: &Arc<H>,
        stop: &Stop,
        runs: &TaskTracker,
    ) -> Result<(), WorkerError>
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<String, Failure>> + Send + 'static,
    {
        self.meet(stop).await;
        let slots = Arc::new(Semaphore::new(self.concurrency));
        let (mut pause, mut was_answered) = (RETRY_MIN, false);
        loop {
            // Acquire a slot first: the lease of a claimed run starts at once, so the run must start at once.
            let free = tokio::select! {
                biased;
                () = stop.soon.cancelled() => return Ok(()),
                permit = slots.clone().acquire_owned() => permit,
            };
            let Ok(first) = free else { return Ok(()) };
            let limit = (1 + slots.available_permits()).min(CLAIM_RUNS_MAX);
            let claim = self.client.claim(&self.queue, &self.name, limit, CLAIM_WAIT);
            tokio::pin!(claim);
            let claimed = tokio::select! {
                biased;
                () = stop.soon.cancelled() => {
                    self.leave(claim, stop, runs).await;
                    return Ok(());
                }
                claimed = &mut claim => claimed,
            };
            let claimed = match claimed {
                Ok(claimed) => claimed,
                // Later, the same refusal may come from a proxy or a node that is being replaced.
                Err(Refusal::Refused(error)) if !was_answered => return Err(WorkerError::Refused(error)),
                Err(error) => {
                    if let Refusal::Refused(error) = &error {
                        self.client.observer().tell(Event::Refused { error });
                    }
                    stop.sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                    continue;
                }
            };
            if claimed.is_empty() {
                // A stopping server answers at once, without runs. Pause, so as not to claim in a busy loop.
                stop.sleep(RETRY_MIN).await;
            }
            (pause, was_answered) = (RETRY_MIN, true);
            let mut first = Some(first);
            for run in claimed {
                let slot = match first.take() {
                    Some(slot) => Some(slot),
                    None => slots.clone().acquire_owned().await.ok(),
                };
                self.client.observer().tell(Event::Claimed { run: &run });
                let (client, handler, stop) = (self.client.clone(), handler.clone(), stop.clone());
                runs.spawn(async move {
                    work(client, run, handler, stop).await;
                    drop(slot);
                });
            }
        }
    }

    /// The first contact: waits until the server answers, and reports a queue that no job uses. Its name may be misspelled.
    async fn meet(&self, stop: &Stop) {
        let mut pause = RETRY_MIN;
        while !stop.soon.is_cancelled() {
            let answer = tokio::select! {
                biased;
                () = stop.soon.cancelled() => return,
                answer = self.client.has_queue(&self.queue) => answer,
            };
            match answer {
                Ok(true) => return,
                Ok(false) => return self.client.observer().tell(Event::UnknownQueue { queue: &self.queue }),
                // A worker may have no permission to read queues. The claim answers whether it may claim.
                Err(Refusal::Stale | Refusal::Refused(_)) => return,
                Err(Refusal::Unreachable { .. } | Refusal::Later(_)) => stop.sleep(pause).await,
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Ends the wait of the open claim request, and returns the runs of its answer.
    async fn leave(
        &self,
        mut claim: Pin<&mut impl Future<Output = Result<Vec<Run>, Refusal>>>,
        stop: &Stop,
        runs: &TaskTracker,
    ) {
        let leaving = async {
            loop {
                let _ = self.client.leave(&self.queue, &self.name).await;
                tokio::time::sleep(LEAVE_EVERY).await;
            }
        };
        let claimed = tokio::select! {
            biased;
            claimed = &mut claim => claimed,
            () = leaving => return,
            () = stop.patience_ended(ANSWER_FOR) => {
                Err(Refusal::Unreachable { error: "no answer in time".to_owned(), sent: true })
            }
        };
        match claimed {
            Ok(claimed) => claimed.into_iter().for_each(|run| {
                runs.spawn(give_back(self.client.clone(), run, stop.clone()));
            }),
            Err(Refusal::Unreachable { error, sent: true }) => {
                self.client.observer().tell(Event::ClaimUnanswered { error: &error });
            }
            // Nothing was claimed.
            Err(_) => {}
        }
    }
}

/// Returns a run that was claimed and not started.
async fn give_back(client: Client, run: Run, stop: Stop) {
    let patience_ended = stop.patience_ended(RETURN_FOR);
    tokio::pin!(patience_ended);
    loop {
        let error = match client.release(&run).await {
            // Stale: an earlier request, whose answer was lost, returned the run.
            Ok(()) | Err(Refusal::Stale) => return client.observer().tell(Event::Returned { run: &run }),
            Err(error) => error,
        };
        let may_repeat = matches!(error, Refusal::Unreachable { .. } | Refusal::Later(_));
        let ended = tokio::select! {
            biased;
            () = &mut patience_ended => true,
            () = tokio::time::sleep(RETRY_MIN) => !may_repeat,
        };
        if ended {
            return client.observer().tell(Event::NotReturned { run: &run, error: &error.to_string() });
        }
    }
}
