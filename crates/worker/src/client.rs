//! The HTTP requests of a worker, and what their answers mean for it.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{WorkerError, context::Run};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for an answer, in addition to the requested wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: Url,
}

/// Why a request failed. Variants differ by what the worker does next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The worker no longer has the claim. Nothing was changed; a repeat would change nothing either.
    #[error("the claim was lost, or the run has ended")]
    Stale,
    #[error("the server refused the request: {0}")]
    Refused(String),
    /// The request may be repeated.
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

#[derive(Deserialize)]
struct Claimed {
    runs: Vec<Run>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    detail: String,
}

impl Client {
    pub(crate) fn new(server: &str) -> Result<Self, WorkerError> {
        let url = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let server = url.ok_or_else(|| WorkerError::Address(server.to_owned()))?;
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("everytick-worker/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(WorkerError::Client)?;
        Ok(Self { http, server })
    }

    pub(crate) async fn claim(
        &self,
        queue: &str,
        worker: &str,
        limit: usize,
        wait: Duration,
    ) -> Result<Vec<Run>, Refusal> {
        let body = json!({ "worker": worker, "limit": limit, "wait": format!("{}s", wait.as_secs()) });
        let claimed: Claimed = self.post(&["queues", queue, "claim"], &body, wait + ANSWER_TIMEOUT).await?;
        Ok(claimed.runs)
    }

    pub(crate) async fn beat(&self, run: &Run) -> Result<Beat, Refusal> {
        self.post(&["runs", &run.id, "heartbeat"], &json!({ "fence": run.fence }), ANSWER_TIMEOUT).await
    }

    pub(crate) async fn log(&self, run: &Run, text: &str) -> Result<(), Refusal> {
        let body = json!({ "fence": run.fence, "text": text });
        self.post::<serde_json::Value>(&["runs", &run.id, "log"], &body, ANSWER_TIMEOUT).await.map(drop)
    }

    pub(crate) async fn settle(&self, run: &Run, settle: &Settle<'_>) -> Result<(), Refusal> {
        self.post::<serde_json::Value>(&["runs", &run.id, "settle"], settle, ANSWER_TIMEOUT).await.map(drop)
    }

    async fn post<T: for<'de> Deserialize<'de>>(
        &self,
        path: &[&str],
        body: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<T, Refusal> {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let later = |error: reqwest::Error| Refusal::Later(format!("no answer from {}: {error}", self.server));
        let response = self.http.post(url).json(body).timeout(timeout).send().await.map_err(later)?;
        let status = response.status();
        if status.is_success() {
            return response.json().await.map_err(later);
        }
        let problem: Problem = response.json().await.unwrap_or_default();
        Err(match status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Refusal::Stale,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Refusal::Later(problem.detail),
            status if status.is_server_error() => Refusal::Later(format!("{status}: {}", problem.detail)),
            status => Refusal::Refused(format!("{status}: {}", problem.detail)),
        })
    }
}
