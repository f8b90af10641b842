//! `queue`: workers claim the runs; no node delivers them.

mod spec;

use async_trait::async_trait;
use everytick_domain::{
    invalid::Invalid,
    queue::check_queue,
    target::{Outcome, QueueTarget},
};
use tokio_util::sync::CancellationToken;

pub use self::spec::Wire;
use crate::{Dispatch, Kind, KindInfo, LiveOutput, TargetError, TargetSettings};

#[derive(Debug)]
pub struct Queue;

#[async_trait]
impl Kind for Queue {
    type Spec = QueueTarget;

    const INFO: KindInfo = spec::INFO;

    fn validate(spec: &QueueTarget) -> Vec<Invalid> {
        check_queue(&spec.name).err().map(|message| Invalid::new("name", message)).into_iter().collect()
    }

    fn start(_: &TargetSettings) -> Result<Self, TargetError> {
        Ok(Self)
    }

    /// Never called: no node claims runs of a queue.
    async fn deliver(&self, _: &Dispatch, _: &QueueTarget, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        Outcome::Unsent
    }
}
