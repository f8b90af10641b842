//! Limits the memory of large answers and request bodies, as a sum over all clients. A client that does not read its answer, or
//! stops in the middle of a body, occupies memory until a timeout.
//!
//! Bodies and answers below 64 KiB are neither counted nor refused. `/healthz`, `/readyz` and `/metrics` always answer. The answer
//! to a request that may have changed something is counted but never refused, because its content would be lost. A quarter of the
//! limit is reserved for those answers, so that clients that read pages do not block the claims of workers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::Body as _;

use crate::{
    Api,
    error::{ApiError, Result},
};

/// Limit for the bytes of large answers and request bodies in memory.
pub const BYTES_IN_FLIGHT_MAX: usize = 128 * 1024 * 1024;
/// Smaller bodies and answers are not counted.
const LARGE_BYTES_MIN: usize = 64 * 1024;
/// A growing body is counted in steps of this size.
const STEP_BYTES: usize = 64 * 1024;
const ALWAYS_ANSWERED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Counts the bytes in flight. Clones share the count.
#[derive(Clone, Debug)]
pub struct InFlight {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new(BYTES_IN_FLIGHT_MAX)
    }
}

impl InFlight {
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::default(), bytes_max }
    }

    /// Refuses a request before its work starts, if the limit is reached. Used where the answer can be large and can no longer be
    /// refused after the work.
    pub(crate) fn check(&self) -> Result<()> {
        if self.bytes.load(Ordering::Relaxed) < self.bytes_max { Ok(()) } else { Err(busy()) }
    }

    /// A charge of 0 bytes, which can grow.
    pub(crate) fn begin(&self) -> Charge {
        Charge { bytes: 0, of: self.clone() }
    }

    /// Counts bytes that can no longer be refused.
    pub(crate) fn count(&self, bytes: usize) -> Charge {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { bytes, of: self.clone() }
    }

    fn try_count(&self, bytes: usize) -> Result<()> {
        let refused_beyond = self.bytes_max / 4 * 3;
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= refused_beyond);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map(drop).map_err(|_| busy())
    }
}

fn busy() -> ApiError {
    ApiError::Busy("large requests and answers of other clients use all the memory reserved for them; retry".to_owned())
}

/// Counted bytes. Dropping the charge ends the count.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    of: InFlight,
}

impl Charge {
    /// Counts a body that has grown to `bytes`. Refused at three quarters of the limit.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        if bytes < LARGE_BYTES_MIN || bytes <= self.bytes {
            return Ok(());
        }
        let counted = bytes.next_multiple_of(STEP_BYTES);
        self.of.try_count(counted - self.bytes)?;
        self.bytes = counted;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The charge of an answer. The server drops it when the answer is sent.
#[derive(Clone, Debug)]
pub(crate) struct Charged(#[expect(dead_code, reason = "dropping it ends the count")] Arc<Charge>);

impl Charged {
    pub(crate) fn new(charge: Charge) -> Self {
        Self(Arc::new(charge))
    }
}

/// Counts a large answer, or refuses it. Passes the counter to the code that reads the body.
pub(crate) async fn limit(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let refusable =
        matches!(*request.method(), Method::GET | Method::HEAD) && !ALWAYS_ANSWERED.contains(&request.uri().path());
    request.extensions_mut().insert(api.in_flight.clone());
    let mut response = next.run(request).await;
    // A streamed answer has no length and is produced while the client reads it.
    let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    if bytes < LARGE_BYTES_MIN {
        return response;
    }
    let charge = if refusable {
        let mut charge = api.in_flight.begin();
        if let Err(busy) = charge.grow_to(bytes) {
            return busy.into_response();
        }
        charge
    } else {
        api.in_flight.count(bytes)
    };
    response.extensions_mut().insert(Charged::new(charge));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_count_until_their_charge_is_dropped_and_small_ones_never_count() {
        let in_flight = InFlight::new(8 * STEP_BYTES);
        let (mut first, mut second) = (in_flight.begin(), in_flight.begin());
        first.grow_to(LARGE_BYTES_MIN - 1).unwrap();
        assert_eq!(in_flight.bytes.load(Ordering::Relaxed), 0);
        first.grow_to(2 * STEP_BYTES + 1).unwrap();
        first.grow_to(5 * STEP_BYTES).unwrap();
        assert!(second.grow_to(STEP_BYTES + 1).is_err(), "three quarters are 6 steps, of which 5 are used");
        second.grow_to(STEP_BYTES).unwrap();
        in_flight.check().unwrap();
        let beyond = in_flight.count(9 * STEP_BYTES);
        assert!(in_flight.check().is_err());
        drop(first);
        assert!(in_flight.check().is_err() && second.grow_to(2 * STEP_BYTES).is_err());
        drop((beyond, second));
        assert_eq!(in_flight.bytes.load(Ordering::Relaxed), 0);
    }
}
