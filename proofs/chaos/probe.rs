//! Settlements with replaced fences, sent to any node while the newer attempt is in progress (I7).

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::sync::mpsc;

use crate::{common::Random, history::Probe, node::Api, sink::ReplacedFence};

#[derive(Clone, Default)]
pub(crate) struct Probes(Arc<Mutex<Vec<Probe>>>);

impl Probes {
    pub(crate) fn all(&self) -> Vec<Probe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn run(self, apis: Vec<Api>, mut replaced: mpsc::UnboundedReceiver<ReplacedFence>, seed: u64) {
        let mut random = Random::new(seed);
        while let Some(ReplacedFence { run, fence }) = replaced.recv().await {
            let api = apis[usize::try_from(random.below(apis.len() as u64)).unwrap_or(0)].clone();
            let probes = self.clone();
            // Each in its own task: a node that hangs must not delay the other probes.
            tokio::spawn(async move {
                let request = api
                    .request(reqwest::Method::POST, &format!("/api/v1/runs/{run}/settle"))
                    .json(&json!({"fence": fence, "outcome": "succeeded", "output": "too late"}));
                let status = request.send().await.ok().map(|answer| answer.status().as_u16());
                probes.0.lock().unwrap_or_else(PoisonError::into_inner).push(Probe { run, fence, status });
            });
        }
    }
}
