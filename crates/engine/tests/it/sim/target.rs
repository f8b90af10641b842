//! Targets that succeed, fail, delay and hang, and record every delivery.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    target::{Outcome, Retry},
    time::{DbTime, Span},
};
use everytick_store::WallClock;
use everytick_targets::{Capabilities, Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use super::{random::Random, world::SimClock};

#[derive(Clone, Debug)]
pub struct Delivery {
    pub run: RunId,
    pub job: JobId,
    pub attempt: u32,
    pub fence: Fence,
    pub scheduled_at: DbTime,
    /// The highest time that the database clock had shown when the delivery began.
    pub clock: DbTime,
    /// Virtual time since the start.
    pub after: Duration,
    pub ended: bool,
}

#[derive(Clone, Default)]
pub struct History(pub Arc<Mutex<Vec<Delivery>>>);

pub struct SimTarget {
    pub random: Random,
    pub clock: Arc<SimClock>,
    pub history: History,
    /// What its node publishes as deliverable. The target delivers everything else too: if no other node can deliver a run, the
    /// owner delivers it.
    pub can: Capabilities,
}

/// Marks the delivery as ended, even if its process is killed.
pub struct Open(History, usize);

impl Delivery {
    /// Records a delivery that begins. `of` gets the highest clock time so far and the virtual time since the start.
    pub fn begin(history: &History, clock: &SimClock, of: impl FnOnce(DbTime, Duration) -> Self) -> Open {
        let mut all = history.0.lock().unwrap();
        all.push(of(clock.peak().max(clock.now()), clock.elapsed()));
        Open(history.clone(), all.len() - 1)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.lock().unwrap()[self.1].ended = true;
    }
}

#[async_trait::async_trait]
impl Target for SimTarget {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome {
        let open = Delivery::begin(&self.history, &self.clock, |clock, after| Delivery {
            run: dispatch.run,
            job: dispatch.job_id,
            attempt: dispatch.attempt,
            fence: dispatch.fence,
            scheduled_at: dispatch.scheduled_at,
            clock,
            after,
            ended: false,
        });
        let failed = |retry| Outcome::Failed { error: "no".into(), output: None, retry };
        let (takes, outcome) = match self.random.below(100) {
            0..60 => (self.random.millis(1, 60), Outcome::Succeeded { output: None }),
            60..75 => (self.random.millis(500, 4_000), Outcome::Succeeded { output: None }),
            75..88 => (self.random.millis(1, 300), failed(Retry::Allowed)),
            88..91 => (self.random.millis(1, 300), failed(Retry::After(Span::seconds(2)))),
            91..94 => (self.random.millis(1, 300), failed(Retry::Never)),
            _ => (dispatch.timeout.into(), Outcome::TimedOut { after: dispatch.timeout, output: None }),
        };
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Outcome::Cancelled { output: None },
            () = tokio::time::sleep(takes) => outcome,
        };
        drop(open);
        outcome
    }

    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }
}
