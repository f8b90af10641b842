//! Creates many jobs. The request has one line of JSON for each job, and the answer one line for each result, in the
//! same order. Lines are read and jobs are created in chunks, so memory is bounded by a few chunks of input and by the
//! number of lines of output.
//!
//! One task reads the body and never waits for the client to read the answer. Many clients send everything before they read
//! anything, so waiting would be a deadlock. A second task creates the jobs: while the database writes a chunk, the first task
//! reads and checks the next one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
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

use super::{Shared, State};
use crate::{
    auth::Call,
    body::{BODY_BYTES_MAX, check_announced, check_media_type, read_object},
    elsewhere::Elsewhere,
    error::{ApiError, Result},
    in_flight::Charge,
    params::Params,
    warnings,
    wire::{Problem, batch::BatchLine, job::JobDefinition},
};

pub(crate) const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bounds the answer, which is buffered until the client reads it.
pub(crate) const BATCH_LINES_MAX: u64 = 100_000;
const LINE_BYTES_MAX: usize = BODY_BYTES_MAX;
/// A chunk is one transaction.
const CHUNK_LINES_MAX: usize = 1_000;
const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many chunks are read while an earlier chunk is written.
const CHUNKS_AHEAD_MAX: usize = 2;
/// A client that sends nothing for this long is considered gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Total time that a batch waits for its client, plus one second for each `BYTES_PER_SECOND_MIN` bytes received. Without this
/// limit, a client that sends very slowly could block one of the `BATCHES_MAX` batches forever.
const WAIT_MAX: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND_MIN: usize = 16 * 1024;

const NDJSON: &str = "application/x-ndjson";

/// Batches are large, so only this many are processed at a time.
const BATCHES_MAX: usize = 2;

/// Limits how many batches are processed at a time.
#[derive(Clone, Debug)]
pub struct Batches(Arc<Semaphore>);

impl Default for Batches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BATCHES_MAX)))
    }
}

impl Batches {
    fn begin(&self) -> Result<OwnedSemaphorePermit> {
        let many = format!("{BATCHES_MAX} batches are in progress; send this one when one of them has ended");
        self.0.clone().try_acquire_owned().map_err(|_| ApiError::TooMany(many))
    }
}

/// Create many jobs
///
/// One definition per line (NDJSON), up to 64 MiB and 100,000 lines. The answer has one line for each, in the same
/// order, with the status that a request for that job alone would get. Every valid job is created; every invalid one
/// gets its errors. Empty lines are ignored. At most two batches are processed at a time. Names are unique, so an
/// interrupted batch can be sent again: jobs that exist already get 409.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/batch",
    tag = "jobs",
    request_body(content = String, content_type = "application/x-ndjson", description = "One JobDefinition per line", example = "{\"name\": \"a\", \"target\": {\"http\": {\"url\": \"https://example.org/a\"}}}\n{\"name\": \"b\", \"target\": {\"http\": {\"url\": \"https://example.org/b\"}}}\n"),
    responses(
        (status = 200, description = "One BatchLine for each line", body = BatchLine, content_type = "application/x-ndjson"),
        (status = 429, description = "Two batches are in progress", body = Problem, content_type = "application/problem+json", headers(("Retry-After" = u64, description = "Seconds to wait before the next try"))),
    )
)]
pub(crate) async fn create_jobs(State(api): Shared, params: Params, request: Request) -> Result<Response> {
    params.finish()?;
    let (parts, body) = request.into_parts();
    check_announced(&parts.headers, BATCH_BYTES_MAX)?;
    if body.is_end_stream() {
        return Err(ApiError::malformed("", "the body is empty; send one line of JSON for each job"));
    }
    check_media_type(&parts.headers, &[NDJSON, "application/ndjson", "application/jsonl"])?;
    api.in_flight.check()?;
    let permit = api.batches.begin()?;
    let (answers, answered) = unbounded_channel();
    let (chunks, read) = mpsc::channel(CHUNKS_AHEAD_MAX);
    tokio::spawn(create(api.clone(), read, answers.clone(), permit));
    let elsewhere = Elsewhere::of_any(&api).await;
    tokio::spawn(Batch::new(api, chunks, answers, elsewhere).read(body));
    let answered = stream::unfold(answered, |mut answered| async move {
        answered.recv().await.map(|lines: Lines| (Ok::<_, std::convert::Infallible>(lines.text), answered))
    });
    let mut response = Body::from_stream(answered).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

/// A part of the answer. It counts as in flight until the server takes it from the channel.
struct Lines {
    text: Bytes,
    _charge: Charge,
}

struct Batch {
    api: Arc<Call>,
    chunks: Sender<Chunk>,
    answers: UnboundedSender<Lines>,
    /// Number of lines read, including empty ones.
    line: u64,
    chunk: Chunk,
    chunk_bytes: usize,
    elsewhere: Elsewhere,
}

/// Lines in order, and the jobs of the valid ones.
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
    fn new(api: Arc<Call>, chunks: Sender<Chunk>, answers: UnboundedSender<Lines>, elsewhere: Elsewhere) -> Self {
        Self { api, chunks, answers, line: 0, chunk: Chunk::default(), chunk_bytes: 0, elsewhere }
    }

    async fn read(mut self, body: Body) {
        let mut body = body.into_data_stream();
        let (mut partial_line, mut bytes, mut waited) = (BytesMut::new(), 0, Duration::ZERO);
        let mut too_long = false;
        loop {
            let wait_began = now();
            let part = tokio::time::timeout(wait_left(bytes, waited), body.next()).await;
            waited += now().saturating_duration_since(wait_began);
            let part = match part {
                Ok(None) => break,
                Ok(Some(Ok(part))) => part,
                Ok(Some(Err(_))) => {
                    return self.stop(&ApiError::malformed("", "the body ended early, at this line")).await;
                }
                Err(_) => return self.stop(&ApiError::TooSlow).await,
            };
            bytes += part.len();
            if bytes > BATCH_BYTES_MAX {
                return self.stop(&ApiError::TooLarge { field: "body", bytes_max: BATCH_BYTES_MAX }).await;
            }
            let mut rest = &part[..];
            while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                partial_line.extend_from_slice(&rest[..at]);
                rest = &rest[at + 1..];
                let line = partial_line.split();
                if !self.add(&line, std::mem::take(&mut too_long)) {
                    let wrong = format!("has more than {BATCH_LINES_MAX} lines; send the rest in another batch");
                    return self.stop(&ApiError::malformed("body", wrong)).await;
                }
                if self.chunk.lines.len() >= CHUNK_LINES_MAX || self.chunk_bytes >= CHUNK_BYTES_MAX {
                    self.flush().await;
                }
            }
            partial_line.extend_from_slice(rest);
            if partial_line.len() > LINE_BYTES_MAX {
                partial_line.clear();
                too_long = true;
            }
            if self.answers.is_closed() {
                return;
            }
        }
        if !partial_line.is_empty() || too_long {
            self.add(&partial_line, too_long);
        }
        self.flush().await;
    }

    /// Reads one line. `false` when the batch has too many lines.
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
                .and_then(|definition| {
                    definition.read(None, self.api.allowed(&self.elsewhere)?).map_err(ApiError::Invalid)
                })
                .and_then(|spec| self.api.check_spec(&spec).map(|()| spec))
        };
        self.chunk.lines.push(match read {
            Ok(spec) => {
                let name = spec.name.clone();
                self.chunk.specs.push(spec);
                Line::Valid { line: self.line, name }
            }
            // A line that is too long was not stored completely, so its name is unknown.
            Err(error @ ApiError::TooLarge { .. }) => Line::Refused(refused(self.line, None, &error)),
            Err(error) => Line::Refused(refused(self.line, name_of(text), &error)),
        });
        self.chunk_bytes += text.len();
        true
    }

    /// Passes the chunk to the task that creates the jobs. Waits while `CHUNKS_AHEAD_MAX` chunks are queued.
    async fn flush(&mut self) {
        self.chunk_bytes = 0;
        // The receiving task lives until this sender is dropped.
        let _ = self.chunks.send(std::mem::take(&mut self.chunk)).await;
    }

    /// Ends the batch early, with `why` as the last line. Complete lines before it are still processed.
    async fn stop(mut self, why: &ApiError) {
        self.chunk.lines.push(Line::Refused(refused(self.line + 1, None, why)));
        self.flush().await;
    }
}

/// How long to wait for the next part of the body, given the bytes received and the time already spent waiting. Time in which the
/// batch did not read does not count.
fn wait_left(bytes: usize, waited: Duration) -> Duration {
    let earned = Duration::from_secs((bytes / BYTES_PER_SECOND_MIN) as u64);
    (WAIT_MAX + earned).saturating_sub(waited).min(SILENCE_MAX)
}

#[expect(clippy::disallowed_methods, reason = "measures how long a client takes; schedules nothing")]
fn now() -> Instant {
    Instant::now()
}

/// Creates the jobs of each chunk and answers their lines.
async fn create(
    api: Arc<Call>,
    mut chunks: Receiver<Chunk>,
    answers: UnboundedSender<Lines>,
    permit: OwnedSemaphorePermit,
) {
    while let Some(Chunk { lines, specs }) = chunks.recv().await {
        let warnings = warnings::of_new(&api, &specs).await;
        let made = if specs.is_empty() {
            Ok(Vec::new())
        } else {
            api.commands.create_jobs(api.tenant(), &api.actor(), specs, None).await
        };
        let (made, failed) = match made {
            Ok(made) => (made, ApiError::Internal),
            Err(error) => (Vec::new(), error.into()),
        };
        let mut made = made.into_iter().zip(warnings);
        let mut text = Vec::new();
        for line in lines {
            let answer = match line {
                Line::Refused(answer) => answer,
                Line::Valid { line, name } => match made.next() {
                    Some((Ok(made), warnings)) => {
                        let (name, id) = (Some(name), Some(made.job.id));
                        BatchLine { line, name, id, status: 201, errors: Vec::new(), warnings }
                    }
                    Some((Err(error), _)) => refused(line, Some(name), &error.into()),
                    None => refused(line, Some(name), &failed),
                },
            };
            write(&mut text, &answer);
        }
        if !text.is_empty() {
            // The send fails when the client is gone. Its jobs are created anyway.
            let charge = api.in_flight.count(text.len());
            let _ = answers.send(Lines { text: text.into(), _charge: charge });
        }
    }
    drop(permit);
}

fn refused(line: u64, name: Option<String>, error: &ApiError) -> BatchLine {
    BatchLine {
        line,
        name,
        id: None,
        status: error.status().as_u16(),
        errors: error.errors_or_detail(),
        warnings: Vec::new(),
    }
}

/// The name in a refused line, if it has one.
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
    fn a_batch_ends_after_a_minute_of_waiting_for_a_slow_client() {
        let (mut waited, mut bytes) = (Duration::ZERO, 0);
        for _ in 0..7 {
            let next = Duration::from_secs(10);
            if next > wait_left(bytes, waited) {
                break;
            }
            (waited, bytes) = (waited + next, bytes + 1);
        }
        assert_eq!(waited, WAIT_MAX);
    }

    #[test]
    fn each_16_kib_received_adds_a_second_of_waiting_time() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        assert_eq!(wait_left(0, Duration::ZERO), SILENCE_MAX);
        assert_eq!(wait_left(0, minutes(1)), Duration::ZERO);
        assert_eq!(wait_left(BATCH_BYTES_MAX / 2, minutes(30)), SILENCE_MAX);
        assert_eq!(wait_left(BYTES_PER_SECOND_MIN * 600, minutes(12)), Duration::ZERO);
    }
}
