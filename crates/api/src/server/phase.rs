//! The phase of a connection, which decides its time limit. Every phase change happens inside a poll of the connection's own
//! task. So [`Watched`], which that task polls, needs only to read the phase after each poll and to set the timer.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::{ServerLimits, connections::Connection};

/// Phases in the order of a connection's life. After `Answered` comes `Idle` again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No byte has been received yet.
    New,
    /// A part of a request's head has been received.
    Head,
    /// A request is being answered.
    Busy,
    /// The answer is complete but not sent yet.
    Answered,
    /// Waits for the next request.
    Idle,
}

impl Phase {
    const ALL: [Self; 5] = [Self::New, Self::Head, Self::Busy, Self::Answered, Self::Idle];
    /// A state encodes both: (number of changes) * STEP + phase. So it differs after each change.
    const STEP: u64 = Self::ALL.len() as u64;

    pub(super) fn of(state: u64) -> Self {
        Self::ALL[(state % Self::STEP) as usize]
    }

    pub(super) const fn next(state: u64, phase: Self) -> u64 {
        (state / Self::STEP + 1) * Self::STEP + phase as u64
    }

    const fn limit(self, limits: &ServerLimits) -> Option<Duration> {
        match self {
            Self::New | Self::Head => Some(limits.header_timeout),
            Self::Idle => Some(limits.idle_timeout),
            // The router limits how long a request takes. `Timed` limits how long the client does not read its answer.
            Self::Busy | Self::Answered => None,
        }
    }
}

impl Connection {
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestInProgress {
        self.set(Phase::Busy);
        RequestInProgress(self.clone())
    }
}

/// A request that is being answered. Dropping it ends the request.
#[derive(Debug)]
pub(super) struct RequestInProgress(Arc<Connection>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.set(Phase::Answered);
    }
}

/// The body of an answer. The request lasts until the body is complete.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _request: RequestInProgress,
}

impl Answer {
    pub(super) const fn new(body: Body, request: RequestInProgress) -> Self {
        Self { body, _request: request }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection served by hyper, under the time limit of its phase.
pub(super) struct Watched<'a, C> {
    served: Pin<&'a mut C>,
    connection: Arc<Connection>,
    limits: ServerLimits,
    /// The state for which the timer was set.
    timed: Option<u64>,
    timer: Pin<Box<Sleep>>,
}

impl<'a, C: Future> Watched<'a, C> {
    /// `timer` is the header timeout; it began when the connection was accepted.
    pub(super) fn new(
        served: Pin<&'a mut C>,
        connection: Arc<Connection>,
        limits: ServerLimits,
        timer: Pin<Box<Sleep>>,
    ) -> Self {
        let (_, state) = connection.state();
        Self { served, connection, limits, timed: Some(state), timer }
    }

    pub(super) fn connection(&mut self) -> Pin<&mut C> {
        self.served.as_mut()
    }

    /// Serves until the connection ends. `None` when the client exceeded a time limit.
    pub(super) async fn run(&mut self) -> Option<C::Output> {
        poll_fn(|cx| match self.served.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => self.poll_timer(cx).map(|()| None),
        })
        .await
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (phase, state) = self.connection.state();
        let Some(limit) = phase.limit(&self.limits) else { return Poll::Pending };
        if self.timed != Some(state) {
            self.timed = Some(state);
            self.timer.set(sleep(limit));
        }
        self.timer.as_mut().poll(cx)
    }
}
