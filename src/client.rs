//! The HTTP client of the commands. It sends requests and turns problem+json answers into messages and exit codes.
//! The commands interpret the answers.

use std::{error::Error as _, path::Path, time::Duration};

use anyhow::Context;
use everytick_domain::wrong_input::without_number;
use everytick_worker::{Certificates, Server, WorkerError};
use futures::{Stream, StreamExt};
use reqwest::{Method, Response, StatusCode, Url, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    config::SERVER_DEFAULT,
    credentials::Credential,
    failure::{Exit, Failure},
};

const SERVER_VARIABLE: &str = "EVERYTICK_SERVER";
/// Limit for a whole answer. A followed log has no such limit, only [`SILENCE_MAX`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit between two reads. While a client follows a log, the server sends keep-alives more often than this.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The API's limit for one page.
const PAGE_MAX: usize = 1_000;
/// A list ends after this many empty pages in a row and reports `searched_to`. A page is empty if the server found no item
/// among the rows that it searches per request.
const EMPTY_PAGES_MAX: usize = 20;

#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: Server,
    credential: Credential,
}

impl Client {
    pub(crate) fn new(server: Server) -> anyhow::Result<Self> {
        let http = server.client(concat!("everytick/", env!("CARGO_PKG_VERSION"))).map_err(usage)?;
        Ok(Self { http: http.read_timeout(SILENCE_MAX).build()?, server, credential: Credential::default() })
    }

    /// Sends this credential with each request.
    pub(crate) fn with_credential(self, credential: Credential) -> Self {
        Self { credential, ..self }
    }

    /// Whether requests carry a token.
    pub(crate) fn has_credential(&self) -> bool {
        self.credential.token().is_some()
    }

    pub(crate) fn get<'a>(&'a self, path: &[&str]) -> Request<'a> {
        self.request(Method::GET, path)
    }
    pub(crate) fn post<'a>(&'a self, path: &[&str]) -> Request<'a> {
        self.request(Method::POST, path)
    }
    pub(crate) fn put<'a>(&'a self, path: &[&str]) -> Request<'a> {
        self.request(Method::PUT, path)
    }
    pub(crate) fn patch<'a>(&'a self, path: &[&str]) -> Request<'a> {
        self.request(Method::PATCH, path)
    }
    pub(crate) fn delete<'a>(&'a self, path: &[&str]) -> Request<'a> {
        self.request(Method::DELETE, path)
    }

    /// Encodes each segment, so that a name with `/` or `..` cannot address another path.
    fn request(&self, method: Method, path: &[&str]) -> Request<'_> {
        let mut url = self.server.url().clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        Request { client: self, method, url, headers: Vec::new(), body: None }
    }

    /// The address for messages.
    fn shown(&self) -> String {
        self.server.shown()
    }

    /// What to do after a 401.
    fn unauthenticated(&self) -> String {
        let at = self.shown();
        let lost = "an operator who has no valid token runs `everytick access reset` with the server's database";
        if self.has_credential() {
            return format!(
                "the server at {at} refused this token: it is unknown there, revoked, expired, or not allowed from this \
                 address; store another one with `everytick login`; {lost}"
            );
        }
        format!("the server at {at} needs a token: get one from an admin and store it with `everytick login`; {lost}")
    }

    fn wrong_path(&self) -> String {
        let mut server = self.server.url().clone();
        let path = server.path().to_owned();
        server.set_path("");
        format!("--server: the server has no API under the path {path:?}; write {:?}", server.as_str())
    }

    fn connection_failure(&self, error: &reqwest::Error) -> Failure {
        Failure::new(Exit::NoServer, self.why_unreachable(error))
    }

    fn why_unreachable(&self, error: &reqwest::Error) -> String {
        let (at, url) = (self.shown(), self.server.url());
        if let Some(problem) = self.server.tls_problem(error) {
            return format!("--server: {problem}");
        }
        let (mut causes, mut next) = (Vec::new(), error.source());
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        let caused_by = |words: &[&str]| causes.iter().any(|cause| words.iter().any(|word| cause.contains(word)));
        let host = url.host_str().unwrap_or_default();
        if caused_by(&["dns error", "lookup address"]) {
            return format!(
                "--server: the host {host:?} of {at} has no address; check its name, or write an IP address"
            );
        }
        if error.is_connect() && error.is_timeout() {
            return format!("no server answers at {at} in time; check the host and the port of --server");
        }
        if error.is_connect() {
            return format!(
                "no server answers at {at}; start one with `everytick serve`, or set another address with --server"
            );
        }
        if error.is_timeout() {
            return format!("the server at {at} did not answer in time; the request may still take effect");
        }
        if caused_by(&["invalid HTTP version", "message completed", "HTTP"]) && url.scheme() == "http" {
            return format!(
                "--server: {at} does not answer in HTTP; if it uses TLS, write https:// instead of http://"
            );
        }
        let cause = causes.last().map(|cause| without_number(cause)).unwrap_or_default();
        format!("the connection to {at} was lost: {cause}; repeat the command")
    }
}

/// Reads `--server`. An error contains an example.
pub(crate) fn server(address: &str, certificates: Certificates) -> anyhow::Result<Server> {
    check_address(address).map_err(|wrong| {
        let from_variable = std::env::var(SERVER_VARIABLE).is_ok_and(|value| value == address);
        let source = if from_variable { format!(" (from {SERVER_VARIABLE})") } else { String::new() };
        Failure::usage(format!("--server{source}: {wrong}"))
    })?;
    Server::new(address, certificates).map_err(usage)
}

fn usage(error: WorkerError) -> anyhow::Error {
    Failure::usage(error.to_string()).into()
}

fn check_address(server: &str) -> Result<(), String> {
    if let Some(path) = server.strip_prefix("unix:") {
        let names_socket = Path::new(path).file_name().is_some();
        let wrong = || format!("{server:?} names no socket; write it like \"unix:/run/everytick/api.sock\"");
        return if names_socket { Ok(()) } else { Err(wrong()) };
    }
    let shown = if server.contains('@') { "the value".to_owned() } else { format!("{server:?}") };
    let url = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        let with_scheme = format!("http://{server}");
        let meant = Url::parse(&with_scheme).is_ok_and(|url| url.has_host()) && !server.contains("://");
        let example = if meant && !server.contains('@') { &with_scheme } else { SERVER_DEFAULT };
        return Err(format!("{shown} is not the URL of a server; write it like {example:?}"));
    };
    if ["/api", "/docs", "/openapi.json"].iter().any(|path| url.path().starts_with(path)) {
        let mut server = url.clone();
        server.set_path("");
        return Err(format!("{shown} has the path {:?}; write only the server: {:?}", url.path(), server.as_str()));
    }
    Ok(())
}

/// One request to the server.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    client: &'a Client,
    method: Method,
    url: Url,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl<'a> Request<'a> {
    pub(crate) fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    pub(crate) fn query_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn header_some(self, name: &'static str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn json(self, body: &impl Serialize) -> anyhow::Result<Self> {
        Ok(self.body("application/json", serde_json::to_vec(body)?))
    }

    pub(crate) fn body(mut self, media_type: &str, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self.header("content-type", media_type)
    }

    /// Returns the JSON of the answer, `null` if the body is empty.
    pub(crate) async fn send(self) -> anyhow::Result<Answer> {
        let client = self.client;
        let response = self.response(Some(ANSWER_TIMEOUT)).await?;
        let text = response.text().await.map_err(|error| client.connection_failure(&error))?;
        let text = if text.is_empty() { "null".to_owned() } else { text };
        RawValue::from_string(text).map(Answer).map_err(|_| not_everytick(client, "a body that is not JSON").into())
    }

    /// Returns the lines of the answer, each of them JSON. No time limit: creating many jobs takes longer than other requests.
    pub(crate) async fn lines(self) -> anyhow::Result<Vec<Answer>> {
        let client = self.client;
        let response = self.response(None).await?;
        let text = response.text().await.map_err(|error| client.connection_failure(&error))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines = lines.map(|line| RawValue::from_string(line.to_owned()).map(Answer));
        lines.collect::<Result<_, _>>().map_err(|_| not_everytick(client, "a body that is not JSON").into())
    }

    /// Returns the media type of the answer, and its body as a stream.
    pub(crate) async fn stream(
        self,
        accept: &str,
    ) -> anyhow::Result<(String, impl Stream<Item = anyhow::Result<Vec<u8>>>)> {
        let client = self.client;
        let response = self.header("accept", accept).response(None).await?;
        let media_type = media_type(&response);
        let chunks = response
            .bytes_stream()
            .map(move |chunk| Ok(chunk.map_err(|error| client.connection_failure(&error))?.to_vec()));
        Ok((media_type, chunks))
    }

    /// Reads pages until it has `limit` items, and returns them as one page.
    pub(crate) async fn list(self, limit: usize, cursor: Option<String>) -> anyhow::Result<Page> {
        let mut list = Page { items: Vec::new(), next_cursor: cursor, searched_to: None };
        let mut empty = 0;
        loop {
            let answer = self
                .clone()
                .query("limit", (limit - list.items.len()).clamp(1, PAGE_MAX))
                .query_some("cursor", list.next_cursor.as_deref())
                .send()
                .await?;
            let page: Page = answer.read()?;
            empty = if page.items.is_empty() { empty + 1 } else { 0 };
            list.items.extend(page.items);
            list.next_cursor = page.next_cursor;
            list.searched_to = page.searched_to;
            if list.next_cursor.is_none() || list.items.len() >= limit || empty >= EMPTY_PAGES_MAX {
                return Ok(list);
            }
        }
    }

    /// Sends the request. An answer other than 2xx becomes an error.
    async fn response(self, timeout: Option<Duration>) -> anyhow::Result<Response> {
        let client = self.client;
        let mut request = client.http.request(self.method, self.url);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(token) = client.credential.token() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = self.body {
            request = request.body(body);
        }
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        let response = request.send().await.map_err(|error| client.connection_failure(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if media_type(&response) != "application/problem+json" {
            if let Some(problem) = client.server.expects_tls(status, response).await {
                return Err(Failure::new(Exit::NoServer, format!("--server: {problem}")).into());
            }
            // A proxy answers so while its server restarts.
            return Err(not_everytick(client, &status.to_string()).temporary_if(status.is_server_error()).into());
        }
        let body = response.bytes().await.unwrap_or_default();
        let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
        if problem.kind.ends_with(":no-such-path") && client.server.url().path() != "/" {
            return Err(Failure::usage(client.wrong_path()).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(Failure::new(exit_of(status), client.unauthenticated()).into());
        }
        let temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        Err(Failure::new(exit_of(status), by_flag(&problem.message(status))).temporary_if(temporary).into())
    }
}

/// Replaces the names of headers by those of the flags that set them.
fn by_flag(message: &str) -> String {
    message
        .replace("If-Match: ", "--if-version: ")
        .replace(", which If-Match does not contain", "; read the job again")
        .replace("Idempotency-Key: ", "--idempotency-key: ")
}

/// The JSON text of an answer, unchanged: member order and number spelling stay as the server wrote them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Answer(Box<RawValue>);

impl Answer {
    /// Decodes the fields that a table shows.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_str(self.0.get())
            .context("could not decode the server's answer; is the server another release?")
    }
}

/// A page of a list, or several pages joined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) items: Vec<Answer>,
    pub(crate) next_cursor: Option<String>,
    /// How far back the server searched a list of runs, if it did not reach the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) searched_to: Option<String>,
}

impl Page {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<Vec<T>> {
        self.items.iter().map(Answer::read).collect()
    }
}

fn media_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn not_everytick(client: &Client, answer: &str) -> Failure {
    let path = if client.server.url().path() == "/" { "" } else { " and the path" };
    let at = client.shown();
    Failure::new(
        Exit::Failed,
        format!("the server at {at} is not everytick: it answered {answer}; check the port{path} of --server"),
    )
}

fn exit_of(status: StatusCode) -> Exit {
    match status {
        StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => Exit::Conflict,
        _ => Exit::Failed,
    }
}

/// An RFC 9457 problem, in the form that the API writes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    detail: Option<String>,
    errors: Vec<FieldError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FieldError {
    field: String,
    message: String,
}

impl Problem {
    fn names_permission(&self) -> bool {
        self.errors.iter().any(|error| error.field == "permission")
    }

    /// One line for one error, else the title and a line per error.
    fn message(&self, status: StatusCode) -> String {
        let errors: Vec<String> = self.errors.iter().map(FieldError::line).collect();
        match (errors.as_slice(), &self.detail) {
            // Its only error is the name of the missing permission.
            (_, Some(detail)) if self.kind.ends_with(":forbidden") && self.names_permission() => {
                format!("{detail}; `everytick whoami` shows what it may do")
            }
            ([], Some(detail)) => detail.clone(),
            ([], None) if self.title.is_empty() => format!("the server answered {status}"),
            ([], None) => self.title.clone(),
            ([one], _) => one.clone(),
            // The others belong to the first, such as the candidates of an ambiguous id.
            ([first, rest @ ..], _) if self.errors.iter().skip(1).all(|error| error.field.is_empty()) => {
                format!("{first}\n  {}", rest.join("\n  "))
            }
            (many, _) => format!("{}\n  {}", self.title, many.join("\n  ")),
        }
    }
}

impl FieldError {
    pub(crate) fn line(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(path: &[&str]) -> String {
        let client = Client::new(server("http://127.0.0.1:8640/", Certificates::default()).unwrap()).unwrap();
        client.get(path).url.to_string()
    }

    #[test]
    fn a_path_segment_cannot_address_another_path() {
        assert_eq!(url(&["jobs", "nightly"]), "http://127.0.0.1:8640/api/v1/jobs/nightly");
        assert_eq!(url(&["jobs", "a/../b?c#d"]), "http://127.0.0.1:8640/api/v1/jobs/a%2F..%2Fb%3Fc%23d");
    }

    #[test]
    fn an_invalid_server_url_is_refused_before_any_request() {
        for (server, meant) in [
            ("", "http://127.0.0.1:8640"),
            ("127.0.0.1:8640", "http://127.0.0.1:8640"),
            ("localhost", "http://localhost"),
            ("db.example.org:99", "http://db.example.org:99"),
            ("ftp://host/", "http://127.0.0.1:8640"),
            ("http://", "http://127.0.0.1:8640"),
            ("http://127.0.0.1:99999", "http://127.0.0.1:8640"),
            ("http://h:1/api/v1", "http://h:1/"),
            ("http://h:1/docs", "http://h:1/"),
            ("unix:", "unix:/run/everytick/api.sock"),
        ] {
            let message = super::server(server, Certificates::default()).unwrap_err().to_string();
            assert!(message.contains(&format!("{meant:?}")), "{server}: {message}");
        }
        let secret = server("me:hunter2@h", Certificates::default()).unwrap_err().to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn a_stale_version_is_reported_with_the_flag() {
        for message in [
            "If-Match: the current version is 1, which If-Match does not contain",
            "If-Match: the current version is 1, not 7",
        ] {
            let shown = by_flag(message);
            assert!(
                shown.starts_with("--if-version: the current version is 1") && !shown.contains("If-Match"),
                "{shown}"
            );
        }
    }

    #[test]
    fn each_error_of_a_problem_is_printed_with_its_field() {
        let problem = |text| serde_json::from_str::<Problem>(text).unwrap().message(StatusCode::UNPROCESSABLE_ENTITY);
        let one = r#"{"title": "The request is not valid", "detail": "x", "errors": [{"field": "timeout", "message": "is zero"}]}"#;
        assert_eq!(problem(one), "timeout: is zero");
        let two = r#"{"title": "The request is not valid", "errors": [{"field": "a", "message": "b"}, {"field": "", "message": "c"}]}"#;
        assert_eq!(problem(two), "a: b\n  c");
        assert_eq!(problem(r#"{"title": "Not found", "detail": "no such job"}"#), "no such job");
        assert_eq!(problem("{}"), "the server answered 422 Unprocessable Entity");
    }
}
