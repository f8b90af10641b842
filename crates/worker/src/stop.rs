//! How a worker stops: first it claims no more, then it ends the runs in progress.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long a worker that ends its runs in progress still waits for the server.
const NOW_FOR: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// Claim no more runs.
    pub(crate) soon: CancellationToken,
    /// End the runs in progress.
    pub(crate) now: CancellationToken,
    /// How long a handler may continue after it was asked to end.
    pub(crate) grace: Duration,
}

impl Stop {
    /// Resolves when a stopping worker has waited long enough for the server: `time` after it began to stop, or a few seconds after
    /// it began to end the runs in progress.
    pub(crate) async fn patience_ended(&self, time: Duration) {
        let soon = async {
            self.soon.cancelled().await;
            tokio::time::sleep(time).await;
        };
        let now = async {
            self.now.cancelled().await;
            tokio::time::sleep(NOW_FOR.min(time)).await;
        };
        tokio::select! {
            () = soon => {}
            () = now => {}
        }
    }

    /// Sleeps, but not longer than until the worker stops.
    pub(crate) async fn sleep(&self, time: Duration) {
        tokio::select! {
            () = self.soon.cancelled() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}
