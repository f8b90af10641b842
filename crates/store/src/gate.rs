//! Divides a store's connections between the engine and the API. Each has its own handle (`api_handle`). The engine's
//! handle is not limited. The API's handle admits a fixed number of calls; further calls wait for a limited time. So no
//! number of requests delays the recording of ticks.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Result, StoreError};

/// A call of the API that waits this long for a connection is refused with [`StoreError::Busy`].
pub const API_WAIT_MAX: Duration = Duration::from_secs(1);

/// Admits a limited number of transactions of one handle, in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Option<Arc<Semaphore>>);

/// The permission to have one transaction open. The transaction keeps it until it ends.
#[derive(Debug)]
pub(crate) struct Admission {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Gate {
    /// For the engine: only its pool limits it.
    pub(crate) const fn open() -> Self {
        Self(None)
    }

    /// For the API.
    pub(crate) fn of(transactions_max: u32) -> Self {
        Self(Some(Arc::new(Semaphore::new(transactions_max as usize))))
    }

    pub(crate) async fn enter(&self, doing: &'static str) -> Result<Admission> {
        let Some(permits) = &self.0 else { return Ok(Admission { _permit: None }) };
        match tokio::time::timeout(API_WAIT_MAX, permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Admission { _permit: Some(permit) }),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(StoreError::Busy { doing }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_gate_refuses_after_a_second_and_admits_again_when_a_transaction_ends() {
        let gate = Gate::of(2);
        let (first, _second) = (gate.enter("read").await.unwrap(), gate.enter("read").await.unwrap());
        let refused = tokio::time::timeout(API_WAIT_MAX * 2, gate.enter("read")).await.unwrap();
        assert!(matches!(refused, Err(StoreError::Busy { doing: "read" })));
        drop(first);
        assert!(gate.enter("read").await.is_ok());
    }

    #[tokio::test]
    async fn an_open_gate_admits_everything() {
        let gate = Gate::open();
        let mut admitted = Vec::new();
        for _ in 0..1_000 {
            admitted.push(gate.enter("record").await.unwrap());
        }
    }
}
