//! The HTTP requests of a worker, and what their answers mean for it. Reports when the server stops answering, and when it answers
//! again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Method, RequestBuilder, Response, StatusCode, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    WorkerError,
    context::{Run, Unsent},
    event::{Event, Observer},
    server::{Server, without_number},
};

/// Time limit for an answer, in addition to the requested wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: Server,
    /// The address for messages.
    shown: String,
    token: Option<Secret>,
    observer: Observer,
    /// Since when the server does not answer; `None` while it does.
    silent_since: Arc<Mutex<Option<Instant>>>,
}

/// A token, which `Debug` does not show.
#[derive(Clone)]
struct Secret(Arc<str>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a request failed. Variants differ by what the worker does next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The worker no longer has the claim. Nothing was changed; a repeat would change nothing either.
    #[error("the claim was lost, or the run has ended")]
    Stale,
    #[error("{0}")]
    Refused(String),
    /// The server, or a proxy before it, is not reachable. The request may be repeated until it is. `sent` means that the server
    /// may have executed it.
    #[error("{error}")]
    Unreachable { error: String, sent: bool },
    /// The server answered that the request may be repeated.
    #[error("{0}")]
    Later(String),
}

/// The answer to a heartbeat.
#[derive(Debug, Deserialize)]
pub(crate) struct Beat {
    pub(crate) cancelled: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Settle<'a> {
    pub(crate) fence: i64,
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
    pub(crate) retry: bool,
}

/// The run after its settlement.
#[derive(Debug, Deserialize)]
pub(crate) struct Settled {
    pub(crate) state: String,
    pub(crate) due_at: String,
}

#[derive(Deserialize)]
struct Claimed {
    runs: Vec<Run>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    #[serde(rename = "type")]
    kind: String,
    detail: String,
}

impl Client {
    pub(crate) fn new(server: Server) -> Result<Self, WorkerError> {
        let agent = concat!("everytick-worker/", env!("CARGO_PKG_VERSION"));
        let http = server.client(agent)?.build().map_err(WorkerError::Client)?;
        let shown = server.shown();
        Ok(Self { http, server, shown, token: None, observer: Observer::default(), silent_since: Arc::default() })
    }

    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.token = Some(Secret(token.into()));
        self
    }

    pub(crate) fn observed_by(mut self, observer: Observer) -> Self {
        self.observer = observer;
        self
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The address of the server, without a slash at the end.
    pub(crate) fn server(&self) -> &str {
        &self.shown
    }

    /// Whether a job uses the queue, or limits are set for it.
    pub(crate) async fn has_queue(&self, queue: &str) -> Result<bool, Refusal> {
        match self.ask::<Value>(self.request(Method::GET, &["queues", queue], ANSWER_TIMEOUT)).await {
            Ok(_) => Ok(true),
            Err(Refusal::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn claim(
        &self,
        queue: &str,
        worker: &str,
        limit: usize,
        wait: Duration,
    ) -> Result<Vec<Run>, Refusal> {
        let body = json!({ "worker": worker, "limit": limit, "wait": format!("{}s", wait.as_secs()) });
        match self.post::<Claimed>(&["queues", queue, "claim"], &body, wait + ANSWER_TIMEOUT).await {
            Ok(claimed) => Ok(claimed.runs),
            // 404: the path names no queue, or the token is for other queues.
            Err(Refusal::Stale) => Err(Refusal::Refused(format!(
                "the worker may not claim from queue {queue:?}; check the name, and the queues of its token"
            ))),
            Err(error) => Err(error),
        }
    }

    /// Ends the open claim requests of this worker.
    pub(crate) async fn leave(&self, queue: &str, worker: &str) -> Result<(), Refusal> {
        let body = json!({ "worker": worker });
        self.post::<Value>(&["queues", queue, "leave"], &body, ANSWER_TIMEOUT).await.map(drop)
    }

    /// Returns a run that was claimed and not started.
    pub(crate) async fn release(&self, run: &Run) -> Result<(), Refusal> {
        let body = json!({ "fence": run.fence });
        self.post::<Value>(&["runs", &run.id, "release"], &body, ANSWER_TIMEOUT).await.map(drop)
    }

    pub(crate) async fn beat(&self, run: &Run) -> Result<Beat, Refusal> {
        self.post(&["runs", &run.id, "heartbeat"], &json!({ "fence": run.fence }), ANSWER_TIMEOUT).await
    }

    pub(crate) async fn log(&self, run: &Run, log: &Unsent) -> Result<(), Refusal> {
        let mut body = json!({ "fence": run.fence, "text": log.text });
        // Sent only if needed: a server of the previous release does not know the field.
        if log.missing > 0 {
            body["missing_bytes"] = log.missing.into();
        }
        self.post::<Value>(&["runs", &run.id, "log"], &body, ANSWER_TIMEOUT).await.map(drop)
    }

    pub(crate) async fn settle(&self, run: &Run, settle: &Settle<'_>) -> Result<Settled, Refusal> {
        self.post(&["runs", &run.id, "settle"], settle, ANSWER_TIMEOUT).await
    }

    async fn post<T: for<'de> Deserialize<'de>>(
        &self,
        path: &[&str],
        body: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<T, Refusal> {
        self.ask(self.request(Method::POST, path, timeout).json(body)).await
    }

    fn request(&self, method: Method, path: &[&str], timeout: Duration) -> RequestBuilder {
        let mut url = self.server.url().clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let request = self.http.request(method, url).timeout(timeout);
        match &self.token {
            Some(token) => request.bearer_auth(&token.0),
            None => request,
        }
    }

    /// Sends a request, and reports a change between a server that answers and one that does not.
    async fn ask<T: for<'de> Deserialize<'de>>(&self, request: RequestBuilder) -> Result<T, Refusal> {
        let answer = self.answer(request).await;
        match &answer {
            Err(Refusal::Unreachable { error, .. } | Refusal::Later(error)) => self.note_silence(error),
            Ok(_) | Err(Refusal::Stale | Refusal::Refused(_)) => self.note_answer(),
        }
        answer
    }

    async fn answer<T: for<'de> Deserialize<'de>>(&self, request: RequestBuilder) -> Result<T, Refusal> {
        let unreachable = |error: reqwest::Error| Refusal::Unreachable {
            error: self.server.tls_problem(&error).unwrap_or_else(|| reason(&error)),
            sent: !error.is_connect(),
        };
        let response = request.send().await.map_err(unreachable)?;
        if response.status().is_success() {
            let body = response.bytes().await.map_err(unreachable)?;
            return serde_json::from_slice(&body).map_err(|_| self.not_ours("a body of another form"));
        }
        Err(self.refusal(response).await)
    }

    async fn refusal(&self, response: Response) -> Refusal {
        let status = response.status();
        let is_problem =
            |value: &reqwest::header::HeaderValue| value.as_bytes().starts_with(b"application/problem+json");
        let ours = response.headers().get(CONTENT_TYPE).is_some_and(is_problem);
        if !ours && status == StatusCode::BAD_REQUEST {
            let expected = self.server.expects_tls(status, response).await;
            return expected.map_or_else(|| self.not_ours(&status.to_string()), Refusal::Refused);
        }
        let problem: Problem = response.json().await.unwrap_or_default();
        let text = if problem.detail.is_empty() { status.to_string() } else { problem.detail };
        match status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => Refusal::Unreachable { error: text, sent: true },
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Refusal::Later(text),
            status if status.is_server_error() => Refusal::Later(text),
            _ if !ours => self.not_ours(&status.to_string()),
            StatusCode::NOT_FOUND if problem.kind.ends_with(":no-such-path") => {
                Refusal::Refused("the server does not know this request; it may be of an older release".to_owned())
            }
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Refusal::Stale,
            _ => Refusal::Refused(format!("the server refused the request: {text}")),
        }
    }

    fn not_ours(&self, answer: &str) -> Refusal {
        Refusal::Refused(format!("the server at {} is not everytick: it answered {answer}", self.server()))
    }

    fn note_silence(&self, error: &str) {
        let mut since = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(now());
            self.observer.tell(Event::ServerLost { server: self.server(), error });
        }
    }

    fn note_answer(&self) {
        let since = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = since {
            self.observer.tell(Event::ServerBack { server: self.server(), after: now() - since });
        }
    }
}

/// The innermost cause, because the outer ones repeat the URL. Leaves out the number of an error of the operating system.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    // The words of hyper for a connection that ended before the answer.
    if ["message completed", "connection closed", "channel closed", "operation was canceled"]
        .iter()
        .any(|words| text.contains(words))
    {
        return "the connection was closed without an answer".to_owned();
    }
    without_number(&text).to_owned()
}

#[expect(clippy::disallowed_methods, reason = "measures how long something took; schedules nothing")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// Answers one request with this status and this kind of problem, and returns what the client makes of it.
    async fn released(status: &str, kind: &str) -> Result<(), Refusal> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let body = json!({ "type": format!("urn:everytick:problem:{kind}"), "detail": "why" }).to_string();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 4_096]);
            while !request.ends_with(b"}") {
                let read = stream.read(&mut part).unwrap();
                request.extend(&part[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let run = serde_json::from_value(json!({
            "id": "1", "job": "mail", "job_id": "2", "cause": "tick", "scheduled_at": "", "attempt": 1, "fence": 3,
            "payload": null, "timeout_at": "",
        }));
        let server = Server::new(&server, crate::Certificates::default()).unwrap();
        let released = Client::new(server).unwrap().release(&run.unwrap()).await;
        answering.join().unwrap();
        released
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_an_answer_is_described() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
        });
        let client = Client::new(Server::new(&address, crate::Certificates::default()).unwrap()).unwrap();
        let lost = client.has_queue("q").await;
        let Err(Refusal::Unreachable { error, .. }) = &lost else { panic!("{lost:?}") };
        assert_eq!(error, "the connection was closed without an answer");
    }

    #[tokio::test]
    async fn a_path_that_an_older_server_does_not_know_is_no_lost_claim() {
        let unknown = released("404 Not Found", "no-such-path").await;
        assert!(matches!(&unknown, Err(Refusal::Refused(error)) if error.contains("older release")), "{unknown:?}");
        for (status, kind) in [("404 Not Found", "not-found"), ("409 Conflict", "stale-claim")] {
            let lost = released(status, kind).await;
            assert!(matches!(lost, Err(Refusal::Stale)), "{status} {kind}: {lost:?}");
        }
    }
}
