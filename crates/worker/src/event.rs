//! What a worker does, for the log of its program. The text of an event is one plain line.

use std::{fmt, sync::Arc, time::Duration};

use crate::Run;

/// An event in the work of a worker. `Display` writes it as one line.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The worker begins. It has not reached the server yet.
    Started {
        worker: &'a str,
        queue: &'a str,
        server: &'a str,
        concurrency: usize,
    },
    /// No job uses the queue. The worker waits for one.
    UnknownQueue {
        queue: &'a str,
    },
    /// The server refused a claim, a heartbeat or a part of the log. The worker repeats it later.
    Refused {
        error: &'a str,
    },
    /// The server does not answer. The worker retries until it does. Sent once per outage.
    ServerLost {
        server: &'a str,
        error: &'a str,
    },
    /// The server answers again.
    ServerBack {
        server: &'a str,
        after: Duration,
    },
    Claimed {
        run: &'a Run,
    },
    /// The server has stored the result. `state` is the new state of the run: `waiting` means that it is retried at `due_at`.
    Settled {
        run: &'a Run,
        state: &'a str,
        due_at: &'a str,
        error: Option<&'a str>,
        took: Duration,
    },
    /// The run was cancelled, so its handler was stopped. There is no result.
    Cancelled {
        run: &'a Run,
        took: Duration,
    },
    /// The claim was lost, so the handler was stopped: no heartbeat arrived for 30 s, or the run exceeded its timeout.
    Lost {
        run: &'a Run,
        took: Duration,
    },
    /// The server did not take the result.
    NotReported {
        run: &'a Run,
        error: &'a str,
    },
    /// The claim was answered after the worker began to stop. The run waits again, with no attempt spent.
    Returned {
        run: &'a Run,
    },
    /// Such a run could not be returned. It waits again when its claim expires, after 30 s.
    NotReturned {
        run: &'a Run,
        error: &'a str,
    },
    /// The last claim request has no answer. If it claimed runs, they wait again when their claims expire, after 30 s.
    ClaimUnanswered {
        error: &'a str,
    },
    /// The worker claims no more runs and waits for those in progress.
    Stopping {
        runs: usize,
    },
    /// The worker ends the runs in progress.
    StoppingNow {
        runs: usize,
    },
    Stopped,
}

impl Event<'_> {
    /// Whether the event needs attention: the server does not answer, or work was lost or is repeated.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        match self {
            Self::UnknownQueue { .. }
            | Self::Refused { .. }
            | Self::ServerLost { .. }
            | Self::Lost { .. }
            | Self::NotReported { .. }
            | Self::NotReturned { .. }
            | Self::ClaimUnanswered { .. } => true,
            Self::Started { .. }
            | Self::ServerBack { .. }
            | Self::Claimed { .. }
            | Self::Settled { .. }
            | Self::Cancelled { .. }
            | Self::Returned { .. }
            | Self::Stopping { .. }
            | Self::StoppingNow { .. }
            | Self::Stopped => false,
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Started { worker, queue, server, concurrency } => {
                write!(f, "worker {worker} started: queue {queue} at {server}, {} at a time", runs(concurrency))
            }
            Self::UnknownQueue { queue } => write!(f, "no job uses queue {queue}; waiting until one does"),
            Self::Refused { error } => OneLine(error).fmt(f),
            Self::ServerLost { server, error } => write!(f, "waiting for the server at {server}: {error}"),
            Self::ServerBack { server, after } => {
                write!(f, "the server at {server} answers again after {}", Took(after))
            }
            Self::Claimed { run } => write!(f, "{}claimed, attempt {}", Of(run), run.attempt),
            Self::Settled { run, state: "waiting", due_at, error, took } => {
                let error = error.unwrap_or_default();
                write!(f, "{}failed after {}: {}; retry at {due_at}", Of(run), Took(took), OneLine(error))
            }
            Self::Settled { run, state, error: Some(error), took, .. } => {
                write!(f, "{}{state} after {}: {}", Of(run), Took(took), OneLine(error))
            }
            Self::Settled { run, state, took, .. } => write!(f, "{}{state} after {}", Of(run), Took(took)),
            Self::Cancelled { run, took } => write!(f, "{}cancelled after {}", Of(run), Took(took)),
            Self::Lost { run, took } => {
                write!(f, "{}stopped after {}: the claim was lost, or the run timed out", Of(run), Took(took))
            }
            Self::NotReported { run, error } => {
                write!(f, "{}the result was not stored: {}", Of(run), OneLine(error))
            }
            Self::Returned { run } => write!(f, "{}returned to the queue", Of(run)),
            Self::NotReturned { run, error } => {
                write!(f, "{}could not be returned, and waits again after 30s: {}", Of(run), OneLine(error))
            }
            Self::ClaimUnanswered { error } => {
                write!(f, "the last claim has no answer; runs that it claimed wait again after 30s: {}", OneLine(error))
            }
            Self::Stopping { runs: 0 } => f.write_str("stopping"),
            Self::Stopping { runs: count } => write!(f, "stopping: waiting for {} in progress", runs(count)),
            Self::StoppingNow { runs: count } => write!(f, "stopping now: ending {} in progress", runs(count)),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

fn runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

struct Of<'a>(&'a Run);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of {}: ", self.0.id, self.0.job)
    }
}

/// Replaces line ends and other control characters: the text comes from handlers and commands.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.trim_end().chars().try_for_each(|c| fmt::Write::write_char(f, if c.is_control() { ' ' } else { c }))
    }
}

/// A duration with two units at most.
struct Took(Duration);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match seconds {
            0 => write!(f, "{millis}ms"),
            1..60 => write!(f, "{seconds}.{}s", millis / 100),
            60..3600 => write!(f, "{}m{}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h{}m", seconds / 3600, seconds % 3600 / 60),
        }
    }
}

/// Receives the events of a worker.
#[derive(Clone)]
pub(crate) struct Observer(Arc<dyn Fn(&Event<'_>) + Send + Sync>);

impl Observer {
    pub(crate) fn new(observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn tell(&self, event: Event<'_>) {
        (self.0)(&event);
    }
}

impl Default for Observer {
    /// Writes events to the log of the program.
    fn default() -> Self {
        Self::new(|event| if event.is_warning() { tracing::warn!("{event}") } else { tracing::info!("{event}") })
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_control_characters() {
        let run: Run = serde_json::from_str(
            r#"{"id": "1", "job": "mail", "job_id": "2", "cause": "tick", "scheduled_at": "", "attempt": 2, "fence": 3,
                "payload": null, "timeout_at": ""}"#,
        )
        .unwrap();
        let settled = |state, error, took| {
            let took = Duration::from_millis(took);
            Event::Settled { run: &run, state, due_at: "2026-01-01T00:00:00Z", error, took }.to_string()
        };
        assert_eq!(settled("succeeded", None, 5), "run 1 of mail: succeeded after 5ms");
        assert_eq!(settled("failed", Some("a\n\x1b[2Jb\n"), 61_200), "run 1 of mail: failed after 1m1s: a  [2Jb");
        let retried = settled("waiting", Some("exit status: 1"), 2_345);
        assert_eq!(retried, "run 1 of mail: failed after 2.3s: exit status: 1; retry at 2026-01-01T00:00:00Z");
        assert_eq!(Event::Stopping { runs: 1 }.to_string(), "stopping: waiting for 1 run in progress");
    }
}
