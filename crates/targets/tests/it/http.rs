//! Webhooks: the request, the outcome by answer, and the refused addresses.

use std::{net::SocketAddr, process::Command};

use axum::{body::Body, response::Response};
use everytick_domain::output::split;
use everytick_domain::{
    ids::{Cause, RunId},
    target::{HttpMethod, HttpTarget, Outcome, Retry, TargetSpec},
    time::{DbTime, Span},
};
use everytick_targets::{Discard, Dispatch, OUTPUT_TAIL_BYTES_MAX, RESPONSE_BYTES_MAX, Target, TargetSettings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Receiver, answering_once, breaking_off_after, deliver, dispatch, endless, http, informing, post, stalling_after,
    started, targets, within,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn signed(url: String, method: HttpMethod) -> Dispatch {
    dispatch(TargetSpec::Http(HttpTarget { method, secret: Some(SECRET.to_owned()), ..http(url) }))
}

/// The verifier checks the timestamp against the system clock, so these dispatches use the present time.
#[expect(clippy::disallowed_methods, reason = "a receiver has no other clock")]
fn today() -> DbTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    DbTime::EPOCH.plus(since_epoch.into())
}

fn failure(outcome: Outcome) -> (String, Retry) {
    match outcome {
        Outcome::Failed { error, retry, .. } => (error, retry),
        // The engine treats it as a failure without retry if no other node can deliver.
        Outcome::NotHere { error, address: Some(_) } => (error, Retry::Never),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_delivery_has_the_payload_and_the_headers_of_the_run() {
    let mut receiver = Receiver::with_status(200).await;
    let sent = post(receiver.url() + "?a=b");
    assert_eq!(deliver(&sent).await, Outcome::Succeeded { output: Some("the body".to_owned()) });

    let seen = receiver.only();
    assert_eq!((seen.method.as_str(), seen.uri.to_string().as_str()), ("POST", "/hook?a=b"));
    assert_eq!(seen.body, r#"{"report":"daily"}"#);
    let run = sent.run.to_string();
    for (name, value) in [
        ("everytick-job", "nightly-report"),
        ("everytick-run", &run),
        ("everytick-scheduled-at", "2026-11-16T07:00:00Z"),
        ("everytick-attempt", "2"),
        ("everytick-fence", "41"),
        ("everytick-cause", "tick"),
        ("everytick-node", "node-1"),
        ("idempotency-key", &run),
        ("webhook-id", &run),
        ("webhook-timestamp", "1794812405"),
        ("content-type", "application/json"),
        ("user-agent", concat!("everytick/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert_eq!(seen.header("webhook-signature"), None, "without a secret there is no signature");
}

#[tokio::test]
async fn a_signature_is_accepted_by_the_standard_webhooks_library() {
    let verifier = standardwebhooks::Webhook::new(SECRET).unwrap();
    for method in [HttpMethod::Post, HttpMethod::Get, HttpMethod::Put, HttpMethod::Patch, HttpMethod::Delete] {
        let mut receiver = Receiver::with_status(200).await;
        let sent = Dispatch { now: today(), ..signed(receiver.url(), method) };
        assert!(matches!(deliver(&sent).await, Outcome::Succeeded { .. }));
        let seen = receiver.only();
        verifier.verify(seen.body.as_bytes(), &seen.headers).unwrap();
        assert!(verifier.verify(b"another body", &seen.headers).is_err());
    }
}

#[tokio::test]
async fn a_request_without_a_body_has_no_content_type() {
    for (method, payload) in [(HttpMethod::Get, Some("{}".to_owned())), (HttpMethod::Post, None)] {
        let mut receiver = Receiver::with_status(200).await;
        let target = TargetSpec::Http(HttpTarget { method, ..http(receiver.url()) });
        deliver(&Dispatch { payload, ..dispatch(target) }).await;
        let seen = receiver.only();
        assert_eq!((seen.body.as_str(), seen.header("content-type")), ("", None));
    }
}

#[tokio::test]
async fn a_job_can_add_headers_and_set_the_content_type() {
    let mut receiver = Receiver::with_status(200).await;
    let headers = [("Authorization", "Bearer abc"), ("Content-Type", "text/plain"), ("User-Agent", "mine")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    deliver(&dispatch(TargetSpec::Http(HttpTarget { headers, ..http(receiver.url()) }))).await;
    let seen = receiver.only();
    assert_eq!(seen.header("authorization"), Some("Bearer abc"));
    assert_eq!(seen.headers.get_all("content-type").iter().collect::<Vec<_>>(), ["text/plain"]);
    assert_eq!(seen.headers.get_all("user-agent").iter().collect::<Vec<_>>(), ["mine"]);
}

#[tokio::test]
async fn an_invalid_definition_is_not_sent() {
    let mut receiver = Receiver::with_status(200).await;
    let headers = [("host".to_owned(), "elsewhere".to_owned())].into();
    let outcome = deliver(&dispatch(TargetSpec::Http(HttpTarget { headers, ..http(receiver.url()) }))).await;
    assert_eq!(failure(outcome).1, Retry::Never);
    assert_eq!(receiver.seen().len(), 0);
}

#[tokio::test]
async fn failures_have_the_status_as_error_and_the_body_as_output() {
    let receiver = Receiver::with_status(500).await;
    let error = "the receiver answered 500 Internal Server Error".to_owned();
    let output = Some("the body".to_owned());
    assert_eq!(deliver(&post(receiver.url())).await, Outcome::Failed { error, output, retry: Retry::Allowed });
}

#[tokio::test]
async fn status_410_is_gone_and_not_failed() {
    let receiver = Receiver::with_status(410).await;
    let note = "the receiver answered 410 Gone".to_owned();
    assert_eq!(deliver(&post(receiver.url())).await, Outcome::Gone { note, output: Some("the body".to_owned()) });
}

#[tokio::test]
async fn only_202_with_the_everytick_async_header_means_accepted() {
    for (status, value, accepted) in
        [(202, "true", true), (202, "TRUE", true), (202, "false", false), (200, "true", false)]
    {
        let receiver = Receiver::with_header(status, "everytick-async", value).await;
        assert_eq!(deliver(&post(receiver.url())).await == Outcome::Accepted, accepted, "{status} {value}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_on_429_and_503() {
    for status in [429, 503] {
        for (value, after) in [("7", Span::seconds(7)), ("Mon, 16 Nov 2026 07:00:10 GMT", Span::millis(4_750))] {
            let receiver = Receiver::with_header(status, "retry-after", value).await;
            assert_eq!(failure(deliver(&post(receiver.url())).await).1, Retry::After(after), "{status} {value}");
        }
    }
}

#[tokio::test]
async fn a_redirect_fails_and_is_not_followed() {
    let mut receiver = Receiver::with_header(302, "location", "/elsewhere").await;
    let (error, retry) = failure(deliver(&post(receiver.url())).await);
    assert_eq!(error, "the receiver answered 302 Found; redirects are not followed");
    assert_eq!(retry, Retry::Never);
    assert_eq!(receiver.only().uri, "/hook");
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_times_out() {
    let (address, ..) = stalling_after("").await;
    let after = Span::millis(50);
    let outcome = deliver(&Dispatch { timeout: after, ..post(format!("http://{address}/")) }).await;
    assert_eq!(outcome, Outcome::TimedOut { after, output: None });
}

#[tokio::test]
async fn a_stalled_body_times_out() {
    let (address, ..) = stalling_after("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of").await;
    let after = Span::millis(300);
    let outcome = deliver(&Dispatch { timeout: after, ..post(format!("http://{address}/")) }).await;
    assert_eq!(outcome, Outcome::TimedOut { after, output: Some("half of".to_owned()) });
}

#[tokio::test]
async fn a_body_that_ends_early_fails_even_after_200() {
    let address = breaking_off_after("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of").await;
    let outcome = deliver(&post(format!("http://{address}/"))).await;
    let Outcome::Failed { error, output, retry: Retry::Allowed } = outcome else { panic!("{outcome:?}") };
    assert!(error.starts_with("the receiver answered 200 OK, but its body ended early: "), "{error}");
    assert_eq!(output.as_deref(), Some("half of"));
}

#[tokio::test]
async fn the_end_of_a_long_body_is_kept() {
    let receiver = Receiver::answering(|| Response::new(Body::from("x".repeat(300_000) + "the end"))).await;
    let Outcome::Succeeded { output: Some(output) } = deliver(&post(receiver.url())).await else { panic!() };
    assert!(output.len() <= OUTPUT_TAIL_BYTES_MAX && split(&output).0 > 0);
    assert!(output.ends_with("the end"));
}

#[tokio::test]
async fn an_endless_body_is_read_only_up_to_the_limit() {
    let address = endless().await;
    let outcome = within("the end of a body", deliver(&post(format!("http://{address}/")))).await;
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    assert!(output.len() <= OUTPUT_TAIL_BYTES_MAX && split(&output).0 > 0);
    const { assert!(RESPONSE_BYTES_MAX > OUTPUT_TAIL_BYTES_MAX) };
}

#[tokio::test]
async fn a_connection_is_reused_for_many_runs() {
    for receiver in [Receiver::with_status(200).await, Receiver::with_header(202, "everytick-async", "true").await] {
        let (targets, sent) = (targets(), post(receiver.url()));
        for _ in 0..20 {
            targets.deliver(&sent, &Discard, &CancellationToken::new()).await;
        }
        assert_eq!(receiver.connections(), 1);
    }
}

#[tokio::test]
async fn a_refused_address_is_not_connected_to_in_any_form() {
    // A listener on every address of this machine: a request that was sent would arrive.
    let mut receiver = Receiver::everywhere().await;
    let port = receiver.address.port();
    let strict = started(TargetSettings::default());
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "①②⑦.0.0.1",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fd00:ec2::254]",
        "localhost",
        "LocalHost",
    ] {
        let url = format!("http://{host}:{port}/");
        let (error, retry) = failure(strict.deliver(&post(url), &Discard, &CancellationToken::new()).await);
        assert_eq!(retry, Retry::Never, "{host}: {error}");
        assert!(error.contains("--allow-webhook-range"), "{host}: {error}");
    }
    assert_eq!(receiver.seen().len(), 0);
}

#[tokio::test]
async fn a_host_name_is_allowed_when_its_address_is_in_an_allowed_range() {
    let mut receiver = Receiver::with_status(204).await;
    let outcome = deliver(&post(format!("http://localhost:{}/", receiver.address.port()))).await;
    assert_eq!(outcome, Outcome::Succeeded { output: None });
    assert_eq!(receiver.only().header("host"), Some(format!("localhost:{}", receiver.address.port()).as_str()));
}

#[tokio::test]
async fn a_refused_host_name_has_its_address_in_the_error() {
    let strict = started(TargetSettings::default());
    let (error, _) =
        failure(strict.deliver(&post("http://localhost:65000/"), &Discard, &CancellationToken::new()).await);
    assert!(error.starts_with("cannot deliver to localhost:65000: "), "{error}");
    assert!(error.contains("is a loopback address; an operator can allow it"), "{error}");
}

#[tokio::test]
async fn more_than_20_informational_answers_fail_the_attempt() {
    let address = informing(20).await;
    let outcome = within("an answer", deliver(&post(format!("http://{address}/")))).await;
    assert_eq!(outcome, Outcome::Succeeded { output: Some("ok".to_owned()) });
    for count in [21, usize::MAX] {
        let address = informing(count).await;
        let (error, retry) = failure(within("an answer", deliver(&post(format!("http://{address}/")))).await);
        assert!(error.contains("more than 20 informational (1xx) answers"), "{error}");
        assert_eq!(retry, Retry::Allowed);
    }
}

/// A delivery of its own run.
fn numbered(address: SocketAddr, number: u64) -> Dispatch {
    let tick = DbTime::EPOCH.plus(Span::seconds(number));
    let sent = post(format!("http://{address}/"));
    Dispatch { run: RunId::of(sent.job_id, Cause::Tick(tick)), ..sent }
}

#[tokio::test]
async fn a_connection_that_the_receiver_has_closed_is_replaced() {
    let (closed, mut has_closed) = tokio::sync::mpsc::unbounded_channel();
    let (address, seen) = answering_once(move |mut stream| {
        let closed = closed.clone();
        async move {
            stream.shutdown().await.unwrap();
            // Ends when the client has closed its side too.
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let _ = closed.send(());
        }
    })
    .await;
    let targets = targets();
    for number in 0..3 {
        let outcome = targets.deliver(&numbered(address, number), &Discard, &CancellationToken::new()).await;
        assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
        within("the end of the connection", has_closed.recv()).await;
    }
    assert_eq!(seen.lock().unwrap().len(), 3, "a new connection each time");
}

#[tokio::test]
async fn a_request_of_which_one_byte_was_written_is_not_sent_again() {
    // The connection is closed when the first byte of the second request has arrived.
    let (address, seen) = answering_once(|mut stream| async move {
        let _ = stream.read_exact(&mut [0]).await;
    })
    .await;
    let targets = targets();
    let send = async |number| targets.deliver(&numbered(address, number), &Discard, &CancellationToken::new()).await;
    assert!(matches!(send(1).await, Outcome::Succeeded { .. }));
    let (error, retry) = failure(send(2).await);
    assert!(error.starts_with("no answer from "), "{error}");
    assert_eq!(retry, Retry::Allowed);
    assert_eq!(seen.lock().unwrap().len(), 1, "no second connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_arrives_twice_however_connections_end() {
    // The receiver closes each connection right after its answer, so the next request finds it open, closing or closed.
    let (address, seen) = answering_once(|stream| async move { drop(stream) }).await;
    let targets = targets();
    let mut succeeded = Vec::new();
    for number in 0..300 {
        let sent = numbered(address, number);
        if let Outcome::Succeeded { .. } = targets.deliver(&sent, &Discard, &CancellationToken::new()).await {
            succeeded.push(sent.run.to_string());
        }
    }
    let mut arrived = seen.lock().unwrap().concat();
    let all = arrived.len();
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), all, "no run arrived twice");
    assert!(succeeded.iter().all(|run| arrived.binary_search(run).is_ok()));
    assert!(succeeded.len() >= 100, "{} of 300 succeeded", succeeded.len());
}

/// A port without a listener.
async fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn an_error_has_its_cause_once_and_not_the_url() {
    let closed = closed_port().await;
    let plain = Receiver::with_status(200).await.address;
    let broken = breaking_off_after("").await;
    for (url, start, end) in [
        (
            format!("http://{closed}/t0ken"),
            format!("could not connect to {closed}: "),
            "Connection refused (os error 111)",
        ),
        (format!("https://{plain}/t0ken"), format!("could not connect to {plain}: "), "corrupt message"),
        (format!("http://{broken}/t0ken"), format!("no answer from {broken}: "), ""),
        ("http://nosuch.invalid/t0ken".to_owned(), "could not resolve nosuch.invalid: ".to_owned(), ""),
    ] {
        let (error, retry) = failure(deliver(&post(url)).await);
        assert_eq!(retry, Retry::Allowed, "{error}");
        let cause = error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}"));
        assert!(!cause.is_empty() && cause.contains(end), "{error}");
        assert!(!error.contains("t0ken") && !error.contains("error sending request"), "{error}");
    }
}

#[tokio::test]
async fn cancelling_drops_the_request() {
    let (address, arrived, left) = stalling_after("").await;
    let cancel = CancellationToken::new();
    let (targets, sent) = (targets(), post(format!("http://{address}/")));
    let (outcome, ()) = tokio::join!(targets.deliver(&sent, &Discard, &cancel), async {
        within("the request", arrived).await.unwrap();
        cancel.cancel();
    });
    assert_eq!(outcome, Outcome::Cancelled { output: None });
    within("the connection's end", left).await.unwrap();
}

#[tokio::test]
async fn a_run_cancelled_before_delivery_sends_nothing() {
    let mut receiver = Receiver::with_status(200).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = targets().deliver(&post(receiver.url()), &Discard, &cancel).await;
    assert_eq!(outcome, Outcome::Cancelled { output: None });
    assert_eq!(receiver.seen().len(), 0);
}

/// A process cannot safely change its own environment, so this test runs itself again in a process with a proxy variable.
#[tokio::test]
async fn a_proxy_in_the_environment_is_not_used() {
    const NAME: &str = "http::a_proxy_in_the_environment_is_not_used";
    if std::env::var_os("HTTP_PROXY").is_some() {
        let mut receiver = Receiver::with_status(200).await;
        assert!(matches!(deliver(&post(receiver.url())).await, Outcome::Succeeded { .. }));
        receiver.only();
        return;
    }
    let proxy = format!("http://{}", closed_port().await);
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .envs(["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, &proxy)))
        .envs(["NO_PROXY", "no_proxy"].map(|name| (name, "")))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && printed.contains("1 passed"), "{printed}");
}

#[tokio::test]
async fn secrets_stay_out_of_errors_and_debug_text() {
    let closed = closed_port().await;
    let headers = [("authorization".to_owned(), "Bearer hunter2".to_owned())].into();
    let target = HttpTarget { headers, secret: Some(SECRET.to_owned()), ..http(format!("http://{closed}/")) };
    let sent = dispatch(TargetSpec::Http(target));
    for text in [format!("{sent:?}"), format!("{:?}", targets()), failure(deliver(&sent).await).0] {
        assert!(!text.contains("hunter2") && !text.contains("MfKQ9r8"), "{text}");
    }
}
