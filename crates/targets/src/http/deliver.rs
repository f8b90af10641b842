//! Delivers to a URL: signs by Standard Webhooks, connects only to checked addresses, and reads the answer. This is the only
//! outbound HTTP client of the product. It does not decide what follows from an outcome, such as a retry.

use std::{
    borrow::Cow,
    error::Error,
    fmt::{Display, Write as _},
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;
use everytick_domain::{
    secret::{Encoding, only_reference},
    target::{HttpMethod, HttpTarget, Outcome, Retry},
    time::{DbTime, Span},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{
        ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, RETRY_AFTER,
        USER_AGENT,
    },
};
use hyper_util::client::legacy;
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use zeroize::Zeroizing;

use super::{
    certified::{CertificateKey, CertifiedClients},
    connect::{Client, Route, client},
    dns::Unresolved,
    informational::Informational,
    own::{OwnAddresses, OwnApi},
    validate::{check_secret, read_url, validate_all_but_url},
};
use crate::{
    AddressPolicy, Dispatch, EgressPolicy, Refused, TargetError, TargetSettings, permanent_failure,
    secrets::ScrubbedTail,
};

/// Maximum number of bytes read of an answer. After that the connection is closed; the status line decides the outcome.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// Longest delay that a receiver can ask for with Retry-After.
pub const RETRY_AFTER_MAX: Span = Span::hours(1);

/// A receiver that sends more interim answers than this fails the attempt.
const INFORMATIONAL_MAX: usize = 20;
const AGENT: &str = concat!("everytick/", env!("CARGO_PKG_VERSION"));
/// Maximum number of headers that a delivery adds to those of the job, including those of the HTTP client.
const HEADERS_ADDED_MAX: usize = 16;
pub(super) const OUT_OF_DESCRIPTORS: &str = "out of file descriptors; raise the open-file limit";
/// The credential with which the receiver may settle the run.
const RUN_TOKEN: HeaderName = HeaderName::from_static("everytick-settle-token");

#[derive(Debug)]
pub struct Http {
    client: Client,
    /// The client for ports on which nodes of the cluster serve their API: it refuses host names that resolve to such a
    /// node. It is a separate client, because a resolver does not know the port of a request.
    api_port_client: Client,
    /// The clients of jobs with a client certificate.
    certified: CertifiedClients,
    route: Route,
    policy: Arc<AddressPolicy>,
    egress: EgressPolicy,
    own: OwnAddresses,
}

impl Http {
    /// Resolves names with the servers of the settings, or of the system if they name none. Without the system's CA
    /// certificates, http still works and https fails with its own message.
    pub(super) fn new(settings: &TargetSettings) -> Result<Self, TargetError> {
        let (policy, own) = (Arc::new(settings.addresses.clone()), OwnAddresses::default());
        let route = Route::new(settings, &policy);
        let build = |own: Option<&OwnAddresses>| {
            client(route.refusing(own), None).map_err(|source| TargetError::Client { source })
        };
        Ok(Self {
            client: build(None)?,
            api_port_client: build(Some(&own))?,
            certified: CertifiedClients::default(),
            route,
            policy,
            egress: settings.egress.clone(),
            own,
        })
    }

    pub(crate) fn forbid(&self, addresses: Vec<SocketAddr>) {
        self.own.set(addresses);
    }

    /// The addresses that this node may reach.
    pub(crate) fn policy(&self) -> AddressPolicy {
        self.policy.as_ref().clone()
    }

    /// Sends one request. A body that ends early fails the attempt even after a 2xx: a receiver that streams may have died
    /// halfway.
    pub(super) async fn send(&self, dispatch: &Dispatch, to: &HttpTarget, cancel: &CancellationToken) -> Outcome {
        let (request, authority) = match self.request(dispatch, to) {
            Ok(ready) => ready,
            Err(Unsendable::Invalid(error)) => return permanent_failure(error),
            Err(Unsendable::Refused(refused)) => return refusal(refused.to_string(), refused),
            Err(Unsendable::OwnApi(own)) => return permanent_failure(own.to_string()),
        };
        let client = match certificate(dispatch, to).and_then(|found| self.client(&request, found.as_ref())) {
            Ok(client) => client,
            Err(error) => return permanent_failure(error),
        };
        let mut tail = dispatch.secrets.tail();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Outcome::Cancelled { output: tail.into_text() },
            ended = tokio::time::timeout(dispatch.timeout.into(), Self::exchange(client, request, &mut tail)) => match ended {
                Err(_) => Outcome::TimedOut { after: dispatch.timeout, output: tail.into_text() },
                Ok(Err(Unanswered::Failed(error))) => unanswered(&error, &authority),
                Ok(Err(Unanswered::Informational)) => {
                    let error = format!("no answer from {authority}: it sent more than {INFORMATIONAL_MAX} informational (1xx) answers");
                    Outcome::Failed { error, output: None, retry: Retry::Allowed }
                }
                Ok(Ok(answer)) => conclude(&answer, dispatch.now, tail.into_text()),
            }
        }
    }

    /// Builds the request and checks everything that can be checked before using the network. Also returns host and port for error
    /// messages, because the rest of a URL may contain a token.
    fn request(&self, dispatch: &Dispatch, to: &HttpTarget) -> Result<(Request<Full<Bytes>>, String), Unsendable> {
        let url = read_url(to).map_err(|invalid| Unsendable::Invalid(invalid.to_string()))?;
        if let Some(invalid) = validate_all_but_url(to).first() {
            return Err(Unsendable::Invalid(invalid.to_string()));
        }
        self.check_receiver(&url)?;
        let authority = url.authority().to_owned();

        let url = filled_url(dispatch, to, url).map_err(Unsendable::Invalid)?;
        let body = dispatch.body().map_err(Unsendable::Invalid)?.filter(|_| to.method != HttpMethod::Get);
        let invalid = |_| Unsendable::Invalid("the URL cannot be sent".to_owned());
        let mut headers = headers(dispatch, to, body.as_deref()).map_err(Unsendable::Invalid)?;
        if let Some(authorization) = self.route.proxy_authorization(url.scheme() == "https") {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        if body.is_none() && to.method != HttpMethod::Get {
            // Some servers refuse a request without a length (411).
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let mut request = Request::new(Full::from(body.map(Cow::into_owned).unwrap_or_default()));
        *request.method_mut() = method(to.method);
        *request.uri_mut() = Uri::try_from(url.as_str()).map_err(invalid)?;
        *request.headers_mut() = headers;
        Ok((request, authority))
    }

    fn check_receiver(&self, url: &Url) -> Result<(), Unsendable> {
        self.egress.check(url).map_err(Unsendable::Invalid)?;
        self.check_literal(url)
    }

    /// Why nothing may be sent to this URL. Names are resolved and checked when a connection is made.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        self.check_receiver(url).map_err(|unsendable| match unsendable {
            Unsendable::Invalid(error) => error,
            Unsendable::Refused(refused) => refused.to_string(),
            Unsendable::OwnApi(own) => own.to_string(),
        })
    }

    /// Checks a literal address, which never reaches the resolver. The `url` crate has parsed unusual forms (`0x7f.1`,
    /// `2130706433`).
    fn check_literal(&self, url: &Url) -> Result<(), Unsendable> {
        let address: IpAddr = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        self.own.check(address, url.port_or_known_default().unwrap_or_default()).map_err(Unsendable::OwnApi)?;
        self.policy.check(address).map_err(Unsendable::Refused)
    }

    /// The client for a request. `certificate` is the client certificate of the job.
    pub(super) fn client<B>(
        &self,
        request: &Request<B>,
        certificate: Option<&CertificateKey<'_>>,
    ) -> Result<Client, String> {
        let is_api_port = self.own.has_port(port(request.uri()));
        let Some(certificate) = certificate else {
            return Ok(if is_api_port { self.api_port_client.clone() } else { self.client.clone() });
        };
        let own = is_api_port.then_some(&self.own);
        self.certified.client(certificate, is_api_port, |identity| client(self.route.refusing(own), Some(identity)))
    }

    /// The request for a body that is not a dispatch.
    pub(super) fn plain(
        &self,
        url: &Url,
        media_type: &'static str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::try_from(url.as_str()).map_err(|_| "the URL cannot be sent".to_owned())?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        if let Some(authorization) = self.route.proxy_authorization(url.scheme() == "https") {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        Ok(request)
    }

    async fn exchange(
        client: Client,
        mut request: Request<Full<Bytes>>,
        tail: &mut ScrubbedTail,
    ) -> Result<Answer, Unanswered> {
        let informational = Informational::count(&mut request, INFORMATIONAL_MAX);
        let mut response = tokio::select! {
            biased;
            () = informational.too_many() => return Err(Unanswered::Informational),
            response = client.request(request) => response.map_err(Unanswered::Failed)?,
        };
        let answer = Answer::of(&response);
        if answer.asynchronous {
            return Ok(answer); // the result comes later, through the settle call
        }
        match read(&mut response, tail).await {
            Err(error) => Ok(Answer { broke_off: Some(root_cause(&error)), ..answer }),
            Ok(()) => Ok(answer),
        }
    }
}

/// The URL with the values of its references. They are in the query, so they do not choose the host; this is checked again.
fn filled_url(dispatch: &Dispatch, to: &HttpTarget, url: Url) -> Result<Url, String> {
    let Cow::Owned(filled) = dispatch.secrets.fill(&to.url, Encoding::Percent)? else { return Ok(url) };
    let filled = Zeroizing::new(filled);
    let parsed = std::str::from_utf8(&filled).ok().and_then(|text| Url::parse(text).ok());
    let same = |filled: &Url| filled.origin() == url.origin() && filled.path() == url.path();
    parsed.filter(same).ok_or_else(|| "the URL with the values of its secrets is not valid".to_owned())
}

/// The client certificate of a job, with its tenant and the name of its secret.
fn certificate<'d>(dispatch: &'d Dispatch, to: &'d HttpTarget) -> Result<Option<CertificateKey<'d>>, String> {
    let Some(name) = to.client_cert.as_deref().and_then(only_reference) else { return Ok(None) };
    let value = dispatch.secrets.value(name)?;
    Ok(Some(CertificateKey { tenant: dispatch.tenant, name, value }))
}

/// Why a request got no answer.
enum Unanswered {
    Failed(legacy::Error),
    /// Too many interim answers.
    Informational,
}

/// Why a request cannot be sent.
enum Unsendable {
    /// The definition is invalid.
    Invalid(String),
    Refused(Refused),
    OwnApi(OwnApi),
}

/// The outcome if this node may not reach the address. Another node may be allowed to, unless the operator denies the address.
fn refusal(error: String, refused: Refused) -> Outcome {
    match refused.is_denied() {
        true => permanent_failure(error),
        false => Outcome::NotHere { error, address: Some(refused.address) },
    }
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}

/// The job's headers, and those that every delivery has. A request without a body has no content type, because some servers
/// would expect a body.
fn headers(dispatch: &Dispatch, to: &HttpTarget, body: Option<&[u8]>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::with_capacity(to.headers.len() + HEADERS_ADDED_MAX);
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &to.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a header name"))?;
        let filled = dispatch.secrets.fill(value, Encoding::Plain)?;
        let sound = HeaderValue::from_bytes(&filled).ok().filter(|value| value.to_str().is_ok());
        let mut value = sound.ok_or_else(|| {
            format!("the value of the header {name} cannot be sent: it is not one line of visible ASCII")
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let mut added = AddedHeaders::default();
    for fact in dispatch.facts() {
        added.set(fact.header, fact.value);
    }
    let seconds = dispatch.now.millis().div_euclid(1_000);
    added.set("idempotency-key", &dispatch.run);
    added.set(standardwebhooks::HEADER_WEBHOOK_ID, &dispatch.run);
    added.set(standardwebhooks::HEADER_WEBHOOK_TIMESTAMP, &seconds);
    if let Some(secret) = &to.secret {
        let signature = signature(dispatch, secret, seconds, body.unwrap_or_default())?;
        added.set(standardwebhooks::HEADER_WEBHOOK_SIGNATURE, &signature);
    }
    added.put_into(&mut headers)?;
    if let Some(token) = &dispatch.run_token {
        let mut value = HeaderValue::from_str(token).map_err(|_| "the run token cannot be sent".to_owned())?;
        value.set_sensitive(true);
        headers.insert(RUN_TOKEN, value);
    }
    Ok(headers)
}

/// The signature by Standard Webhooks. After a rotation there are two until the overlap ends, that of the new key first.
fn signature(dispatch: &Dispatch, secret: &str, seconds: i64, body: &[u8]) -> Result<String, String> {
    let sign = |key: &str| {
        let signed =
            standardwebhooks::Webhook::new(key).and_then(|key| key.sign(&dispatch.run.to_string(), seconds, body));
        signed.map_err(|_| "the secret cannot be used to sign".to_owned())
    };
    let Some(name) = only_reference(secret) else { return sign(secret) };
    let value = dispatch.secrets.value(name)?;
    let signatures = std::iter::once(&value.current).chain(value.previous.as_ref()).map(|key| {
        let key = std::str::from_utf8(key).ok().filter(|key| check_secret(key).is_ok());
        sign(key.ok_or_else(|| {
            format!(
                "the secret {name:?} is not a signing key of Standard Webhooks (whsec_ and 24 to 64 bytes in base64)"
            )
        })?)
    });
    Ok(signatures.collect::<Result<Vec<_>, _>>()?.join(" "))
}

/// The headers that every delivery adds, with their values in one buffer. The client copies the headers of a request twice; a
/// buffer per value would cost three allocations each time.
#[derive(Default)]
struct AddedHeaders {
    text: String,
    /// Each name, and where its value ends in `text`.
    ends: Vec<(&'static str, usize)>,
}

impl AddedHeaders {
    fn set(&mut self, name: &'static str, value: &dyn Display) {
        // Writing to a `String` does not fail.
        let _ = write!(self.text, "{value}");
        self.ends.push((name, self.text.len()));
    }

    fn put_into(self, headers: &mut HeaderMap) -> Result<(), String> {
        let text = Bytes::from(self.text);
        let mut begin = 0;
        for (name, end) in self.ends {
            let value = text.slice(begin..end);
            let refused = || format!("{:?} cannot be sent as the header {name}", String::from_utf8_lossy(&value));
            // Receivers interpret non-ASCII values differently.
            let sound = value.is_ascii().then(|| HeaderValue::from_maybe_shared(value.clone()).ok()).flatten();
            headers.insert(HeaderName::from_static(name), sound.ok_or_else(refused)?);
            begin = end;
        }
        Ok(())
    }
}

/// Reads the body into `tail` until its end or [`RESPONSE_BYTES_MAX`].
async fn read(response: &mut Response<Incoming>, tail: &mut ScrubbedTail) -> Result<(), hyper::Error> {
    let mut bytes = 0;
    while let Some(frame) = response.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue }; // trailers
        tail.push(&chunk);
        bytes += chunk.len();
        if bytes >= RESPONSE_BYTES_MAX {
            break;
        }
    }
    Ok(())
}

/// What an answer means for the run, without its body.
struct Answer {
    status: StatusCode,
    asynchronous: bool,
    retry_after: Option<String>,
    broke_off: Option<String>,
}

impl Answer {
    fn of<B>(response: &Response<B>) -> Self {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let status = response.status();
        Self {
            status,
            asynchronous: status == StatusCode::ACCEPTED
                && header("everytick-async").is_some_and(|value| value.eq_ignore_ascii_case("true")),
            retry_after: header(RETRY_AFTER.as_str()).map(str::to_owned),
            broke_off: None,
        }
    }
}

/// The outcome by status. 4xx may be retried like 5xx: during a deploy, 401 and 404 are temporary. A redirect is not: the job must
/// name the new URL.
fn conclude(answer: &Answer, now: DbTime, output: Option<String>) -> Outcome {
    let status = answer.status;
    if answer.asynchronous {
        return Outcome::Accepted;
    }
    if status == StatusCode::GONE {
        return Outcome::Gone { note: format!("the receiver answered {}", named(status)), output };
    }
    if status.is_success() {
        return match &answer.broke_off {
            None => Outcome::Succeeded { output },
            Some(cause) => {
                let error = format!("the receiver answered {}, but its body ended early: {cause}", named(status));
                Outcome::Failed { error, output, retry: Retry::Allowed }
            }
        };
    }
    if status.is_redirection() {
        let error = format!("the receiver answered {}; redirects are not followed", named(status));
        return Outcome::Failed { error, output, retry: Retry::Never };
    }
    let retry = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let delay = answer.retry_after.as_deref().and_then(|value| retry_after(value, now));
            delay.map_or(Retry::Allowed, Retry::After)
        }
        _ => Retry::Allowed,
    };
    Outcome::Failed { error: format!("the receiver answered {}", named(status)), output, retry }
}

/// `503 Service Unavailable`; only the number when the status has no name.
fn named(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// Seconds or a date. A date in the past means now. Any other value is ignored.
fn retry_after(value: &str, now: DbTime) -> Option<Span> {
    let delay = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is above the maximum too.
        value.parse::<u32>().map_or(RETRY_AFTER_MAX, |seconds| Span::seconds(seconds.into()))
    } else {
        let date = httpdate::parse_http_date(value).ok()?;
        let since_epoch = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        DbTime::EPOCH.plus(since_epoch.into()).since(now)
    };
    Some(delay.min(RETRY_AFTER_MAX))
}

/// The outcome if no answer was received. Its error names the innermost cause.
pub(super) fn unanswered(error: &legacy::Error, authority: &str) -> Outcome {
    if let Some(own) = causes(error).find_map(|cause| cause.downcast_ref::<OwnApi>()) {
        return permanent_failure(format!("cannot deliver to {authority}: {own}"));
    }
    if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
        return refusal(format!("cannot deliver to {authority}: {refused}"), *refused);
    }
    if causes(error).any(is_out_of_descriptors) {
        return unsent(authority, OUT_OF_DESCRIPTORS);
    }
    let unresolved = causes(error).find_map(|cause| cause.downcast_ref::<Unresolved>());
    if let Some(Unresolved::NotQueried(why)) = unresolved {
        return unsent(authority, why);
    }
    let cause = root_cause(error);
    let error = if unresolved.is_some() {
        format!("could not resolve {authority}: {cause}")
    } else if error.is_connect() {
        format!("could not connect to {authority}: {cause}")
    } else {
        format!("no answer from {authority}: {cause}")
    };
    Outcome::Failed { error, output: None, retry: Retry::Allowed }
}

/// The outcome if the cause is on this node: the run is released without using an attempt.
fn unsent(authority: &str, why: &str) -> Outcome {
    tracing::warn!(to = authority, "a run is released unsent: {why}");
    Outcome::Unsent
}

/// EMFILE or ENFILE: this process or this machine cannot open another file or socket. Nothing was sent.
pub(crate) fn is_out_of_descriptors(error: &(dyn Error + 'static)) -> bool {
    let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    code.is_some_and(|code| {
        [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error).contains(&code)
    })
}

pub(super) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The innermost cause. The outer ones only say which part failed.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-16T07:00:00Z";

    fn answer(status: u16, retry_after: Option<&str>) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, asynchronous: false, retry_after: retry_after.map(str::to_owned), broke_off: None }
    }

    fn retry_of(answer: &Answer) -> Retry {
        match conclude(answer, NOW.parse().unwrap(), None) {
            Outcome::Failed { retry, .. } => retry,
            other => panic!("{} gave {other:?}", answer.status),
        }
    }

    #[test]
    fn every_2xx_is_success() {
        for status in [200, 201, 202, 204, 206, 299] {
            let output = Some("done".to_owned());
            let outcome = conclude(&answer(status, None), DbTime::EPOCH, output.clone());
            assert_eq!(outcome, Outcome::Succeeded { output });
        }
    }

    #[test]
    fn redirects_are_not_retried_and_other_failures_are() {
        for status in [300, 301, 302, 303, 304, 307, 308] {
            assert_eq!(retry_of(&answer(status, None)), Retry::Never, "{status}");
        }
        for status in [400, 401, 403, 404, 408, 418, 422, 425, 429, 451, 500, 501, 502, 503, 504, 599, 999] {
            assert_eq!(retry_of(&answer(status, None)), Retry::Allowed, "{status}");
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_date_and_capped() {
        for (value, retry) in [
            ("120", Retry::After(Span::seconds(120))),
            ("0", Retry::After(Span::ZERO)),
            ("3600", Retry::After(RETRY_AFTER_MAX)),
            ("3601", Retry::After(RETRY_AFTER_MAX)),
            ("99999999999999999999999999", Retry::After(RETRY_AFTER_MAX)),
            ("Mon, 16 Nov 2026 07:01:30 GMT", Retry::After(Span::seconds(90))),
            ("Monday, 16-Nov-26 07:01:30 GMT", Retry::After(Span::seconds(90))),
            ("Mon Nov 16 07:01:30 2026", Retry::After(Span::seconds(90))),
            ("Mon, 16 Nov 2026 06:00:00 GMT", Retry::After(Span::ZERO)),
            ("Tue, 16 Nov 2027 07:00:00 GMT", Retry::After(RETRY_AFTER_MAX)),
            ("", Retry::Allowed),
            ("-5", Retry::Allowed),
            ("1.5", Retry::Allowed),
            ("soon", Retry::Allowed),
        ] {
            assert_eq!(retry_of(&answer(429, Some(value))), retry, "{value:?}");
            assert_eq!(retry_of(&answer(503, Some(value))), retry, "{value:?}");
            assert_eq!(retry_of(&answer(500, Some(value))), Retry::Allowed, "only 429 and 503 use Retry-After");
        }
    }
}
