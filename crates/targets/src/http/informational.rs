//! Counts the informational (1xx) answers of one request. A receiver that sends them without end would otherwise keep a slot busy
//! until the time-out.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hyper::{Request, ext::on_informational};
use tokio::sync::Notify;

/// The count of one request.
pub(super) struct Informational(Arc<Count>);

struct Count {
    seen: AtomicUsize,
    too_many: Notify,
}

impl Informational {
    /// Counts those of `request` from now on.
    pub(super) fn count<B>(request: &mut Request<B>, max: usize) -> Self {
        let count = Arc::new(Count { seen: AtomicUsize::new(0), too_many: Notify::new() });
        let counted = Arc::clone(&count);
        on_informational(request, move |_| {
            if counted.seen.fetch_add(1, Ordering::Relaxed) >= max {
                counted.too_many.notify_one();
            }
        });
        Self(count)
    }

    /// Waits until there were more than the maximum.
    pub(super) async fn too_many(&self) {
        self.0.too_many.notified().await;
    }
}
