//! Jobs by the thousand: a line of JSON in, a line of JSON out, in order. Read and made in chunks, so memory is bounded by
//! a few chunks on the way in and by the number of lines on the way out.
//!
//! A task of its own reads, and never waits for the reader of the answer: many clients send everything before they read
//! anything, and would otherwise wait for us while we wait for them. Another makes the jobs: while the database writes a chunk,
//! the next is read and checked.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use everytick_domain::job::JobSpec;
use futures::{StreamExt, stream};
use serde::Deserialize;
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{self, Receiver, Sender, UnboundedSender, unbounded_channel},
};

use super::Shared;
use crate::{
    Api,
    body::{BODY_BYTES_MAX, check_announced, check_media_type, read_object},
    error::{ApiError, Result},
    in_flight::Charge,
    params::Params,
    wire::{Problem, batch::BatchLine, job::JobDefinition},
};

pub(crate) const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bounds the answer, which is kept until it is read.
pub(crate) const BATCH_LINES_MAX: u64 = 100_000;
const LINE_BYTES_MAX: usize = BODY_BYTES_MAX;
/// A chunk is one transaction.
const CHUNK_LINES_MAX: usize = 1_000;
const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;
/// So many chunks are read ahead of the one that is being made.
const CHUNKS_AHEAD_MAX: usize = 2;
/// A sender that is silent for longer has gone away.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// In all, a batch waits so long for its sender, and a second more for each so many bytes that came. A sender that trickles would
/// otherwise occupy one of the few batches without end.
const WAIT_MAX: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND_MIN: usize = 16 * 1024;

const NDJSON: &str = "application/x-ndjson";

/// Batches are large: so many are taken at a time.
const BATCHES_MAX: usize = 2;

/// Limits how many batches are taken at a time.
#[derive(Clone, Debug)]
pub struct Batches(Arc<Semaphore>);

impl Default for Batches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BATCHES_MAX)))
    }
}

impl Batches {
    fn begin(&self) -> Result<OwnedSemaphorePermit> {
        let many = format!("{BATCHES_MAX} batches are being taken already; send this one when one of them has ended");
        self.0.clone().try_acquire_owned().map_err(|_| ApiError::TooMany(many))
    }
}

/// Make many jobs
///
/// One definition a line (NDJSON), up to 64 MiB and 100,000 lines. The answer has a line for each, in order, with the
/// status that the job alone would have had: every valid job is made, each invalid one is named. Empty lines are passed
/// over. Two batches are taken at a time. Names are unique, so a batch that broke off can be sent again: jobs made before answer 409.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/batch",
    tag = "jobs",
    request_body(content = String, content_type = "application/x-ndjson", description = "A JobDefinition a line", example = "{\"name\": \"a\", \"target\": {\"http\": {\"url\": \"https://example.org/a\"}}}\n{\"name\": \"b\", \"target\": {\"http\": {\"url\": \"https://example.org/b\"}}}\n"),
    responses(
        (status = 200, description = "A BatchLine for each line", body = BatchLine, content_type = "application/x-ndjson"),
        (status = 429, description = "Two batches are being taken already", body = Problem, content_type = "application/problem+json", headers(("Retry-After" = u64, description = "Ask again after so many seconds"))),
    )
)]
pub(crate) async fn create_jobs(State(api): Shared, params: Params, request: Request) -> Result<Response> {
    params.finish()?;
    let (parts, body) = request.into_parts();
    check_announced(&parts.headers, BATCH_BYTES_MAX)?;
    if body.is_end_stream() {
        return Err(ApiError::malformed("", "the body is empty; a line of JSON for each job is wanted"));
    }
    check_media_type(&parts.headers, &[NDJSON, "application/ndjson", "application/jsonl"])?;
    api.in_flight.check()?;
    let begun = api.batches.begin()?;
    let (answers, answered) = unbounded_channel();
    let (chunks, read) = mpsc::channel(CHUNKS_AHEAD_MAX);
    tokio::spawn(make(api.clone(), read, answers.clone(), begun));
    tokio::spawn(Batch::new(api, chunks, answers).take(body));
    let answered = stream::unfold(answered, |mut answered| async move {
        answered.recv().await.map(|lines: Lines| (Ok::<_, std::convert::Infallible>(lines.text), answered))
    });
    let mut response = Body::from_stream(answered).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

/// A part of the answer. It counts as in flight until the server takes it.
struct Lines {
    text: Bytes,
    _charge: Charge,
}

struct Batch {
    api: Arc<Api>,
    chunks: Sender<Chunk>,
    answers: UnboundedSender<Lines>,
    /// Lines seen, empty ones too.
    line: u64,
    chunk: Chunk,
    chunk_bytes: usize,
}

/// Lines that were read, to be answered in their turn, and the jobs of the valid ones.
#[derive(Default)]
struct Chunk {
    lines: Vec<Line>,
    specs: Vec<JobSpec>,
}

enum Line {
    Valid { line: u64, name: String },
    Refused(BatchLine),
}

impl Batch {
    fn new(api: Arc<Api>, chunks: Sender<Chunk>, answers: UnboundedSender<Lines>) -> Self {
        Self { api, chunks, answers, line: 0, chunk: Chunk::default(), chunk_bytes: 0 }
    }

    async fn take(mut self, body: Body) {
        let mut body = body.into_data_stream();
        let (mut begun, mut bytes, mut waited) = (BytesMut::new(), 0, Duration::ZERO);
        let mut too_long = false;
        loop {
            let wait_began = now();
            let part = tokio::time::timeout(patience(bytes, waited), body.next()).await;
            waited += now().saturating_duration_since(wait_began);
            let part = match part {
                Ok(None) => break,
                Ok(Some(Ok(part))) => part,
                Ok(Some(Err(_))) => return self.stop(&ApiError::malformed("", "the body broke off here")).await,
                Err(_) => return self.stop(&ApiError::TooSlow).await,
            };
            bytes += part.len();
            if bytes > BATCH_BYTES_MAX {
                return self.stop(&ApiError::TooLarge { field: "body", bytes_max: BATCH_BYTES_MAX }).await;
            }
            let mut rest = &part[..];
            while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                begun.extend_from_slice(&rest[..at]);
                rest = &rest[at + 1..];
                let line = begun.split();
                if !self.add(&line, std::mem::take(&mut too_long)) {
                    let wrong = format!("has more than {BATCH_LINES_MAX} lines; send the rest in another batch");
                    return self.stop(&ApiError::malformed("body", wrong)).await;
                }
                if self.chunk.lines.len() >= CHUNK_LINES_MAX || self.chunk_bytes >= CHUNK_BYTES_MAX {
                    self.flush().await;
                }
            }
            begun.extend_from_slice(rest);
            if begun.len() > LINE_BYTES_MAX {
                begun.clear();
                too_long = true;
            }
            if self.answers.is_closed() {
                return;
            }
        }
        if !begun.is_empty() || too_long {
            self.add(&begun, too_long);
        }
        self.flush().await;
    }

    /// Reads one line; `false` when there were too many.
    fn add(&mut self, text: &[u8], too_long: bool) -> bool {
        self.line += 1;
        if self.line > BATCH_LINES_MAX {
            return false;
        }
        if text.trim_ascii().is_empty() && !too_long {
            return true;
        }
        let read = if too_long || text.len() > LINE_BYTES_MAX {
            Err(ApiError::TooLarge { field: "line", bytes_max: LINE_BYTES_MAX })
        } else {
            read_object::<JobDefinition>(text)
                .and_then(|definition| definition.read(None, self.api.allowed()).map_err(ApiError::Invalid))
        };
        self.chunk.lines.push(match read {
            Ok(spec) => {
                let name = spec.name.clone();
                self.chunk.specs.push(spec);
                Line::Valid { line: self.line, name }
            }
            // A line too long is not there whole, and so not looked into.
            Err(error @ ApiError::TooLarge { .. }) => Line::Refused(refused(self.line, None, &error)),
            Err(error) => Line::Refused(refused(self.line, name_of(text), &error)),
        });
        self.chunk_bytes += text.len();
        true
    }

    /// Hands on what was read, when there is room.
    async fn flush(&mut self) {
        self.chunk_bytes = 0;
        // Whoever makes the jobs is there until we are done.
        let _ = self.chunks.send(std::mem::take(&mut self.chunk)).await;
    }

    /// Ends the batch before its end, after what was read whole.
    async fn stop(mut self, why: &ApiError) {
        self.chunk.lines.push(Line::Refused(refused(self.line + 1, None, why)));
        self.flush().await;
    }
}

/// How long the next part of a body may take, by what came so far and by how long the batch has waited for it. Time in which
/// the batch did not read does not count.
fn patience(bytes: usize, waited: Duration) -> Duration {
    let earned = Duration::from_secs((bytes / BYTES_PER_SECOND_MIN) as u64);
    (WAIT_MAX + earned).saturating_sub(waited).min(SILENCE_MAX)
}

#[expect(clippy::disallowed_methods, reason = "how long a client takes; nothing is scheduled by it")]
fn now() -> Instant {
    Instant::now()
}

/// Makes the jobs of one chunk after the other, and answers their lines.
async fn make(
    api: Arc<Api>,
    mut chunks: Receiver<Chunk>,
    answers: UnboundedSender<Lines>,
    begun: OwnedSemaphorePermit,
) {
    while let Some(Chunk { lines, specs }) = chunks.recv().await {
        let made = if specs.is_empty() {
            Ok(Vec::new())
        } else {
            api.commands.create_jobs(api.tenant(), &api.actor(), specs, None).await
        };
        let (mut made, failed) = match made {
            Ok(made) => (made.into_iter(), ApiError::Internal),
            Err(error) => (Vec::new().into_iter(), error.into()),
        };
        let mut text = Vec::new();
        for line in lines {
            let answer = match line {
                Line::Refused(answer) => answer,
                Line::Valid { line, name } => match made.next() {
                    Some(Ok(made)) => {
                        BatchLine { line, name: Some(name), id: Some(made.job.id), status: 201, errors: Vec::new() }
                    }
                    Some(Err(error)) => refused(line, Some(name), &error.into()),
                    None => refused(line, Some(name), &failed),
                },
            };
            write(&mut text, &answer);
        }
        if !text.is_empty() {
            // Nobody reads any more: the jobs are made all the same.
            let charge = api.in_flight.count(text.len());
            let _ = answers.send(Lines { text: text.into(), _charge: charge });
        }
    }
    drop(begun);
}

fn refused(line: u64, name: Option<String>, error: &ApiError) -> BatchLine {
    BatchLine { line, name, id: None, status: error.status().as_u16(), errors: error.errors_or_detail() }
}

/// The name in a line that cannot be taken, if it has one.
fn name_of(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_slice(text).ok().map(|named: Named| named.name.chars().take(200).collect())
}

fn write(text: &mut Vec<u8>, line: &BatchLine) {
    if serde_json::to_writer(&mut *text, line).is_ok() {
        text.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_trickles_ends_its_batch_within_a_minute() {
        let (mut waited, mut bytes) = (Duration::ZERO, 0);
        for _ in 0..7 {
            let next = Duration::from_secs(10);
            if next > patience(bytes, waited) {
                break;
            }
            (waited, bytes) = (waited + next, bytes + 1);
        }
        assert_eq!(waited, WAIT_MAX);
    }

    #[test]
    fn a_slow_sender_has_as_long_as_its_bytes_need() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        assert_eq!(patience(0, Duration::ZERO), SILENCE_MAX);
        assert_eq!(patience(0, minutes(1)), Duration::ZERO);
        assert_eq!(patience(BATCH_BYTES_MAX / 2, minutes(30)), SILENCE_MAX);
        assert_eq!(patience(BYTES_PER_SECOND_MIN * 600, minutes(12)), Duration::ZERO);
    }
}
