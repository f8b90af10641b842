//! Connections: every wait for a client has a timeout, and the number of connections is limited.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    routing::get,
};
use everytick_api::{ServerLimits, serve};
use futures::stream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3_600);
/// Time limit for what must happen. The tests do not assert how soon it happens.
const WAIT_MAX: Duration = Duration::from_secs(60);

struct Served {
    port: u16,
    /// Answers one request to `/wait`.
    go_on: Arc<Notify>,
    /// Notified when a request to `/wait` arrives.
    waits: Arc<Notify>,
    /// Notified when the server drops an answer of `/endless`.
    given_up: Arc<Notify>,
    closing: CancellationToken,
    ended: JoinHandle<()>,
}

/// Notifies when it is dropped.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn limits() -> ServerLimits {
    ServerLimits { header_timeout: LONG, idle_timeout: LONG, write_timeout: LONG, ..ServerLimits::default() }
}

impl Served {
    async fn new(limits: ServerLimits) -> Self {
        let [go_on, waits, given_up] = [(); 3].map(|()| Arc::new(Notify::new()));
        let (answer, arrived, dropped) = (go_on.clone(), waits.clone(), given_up.clone());
        let wait = async move || {
            arrived.notify_one();
            answer.notified().await;
            "done"
        };
        let endless = async move || {
            let chunk = |on_drop: NotifyOnDrop| async {
                Some((Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 65_536])), on_drop))
            };
            Body::from_stream(stream::unfold(NotifyOnDrop(dropped), chunk))
        };
        let router = Router::new()
            .route("/", get(async || "hello"))
            .route("/wait", get(wait.clone()))
            .route("/endless", get(endless));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let closing = CancellationToken::new();
        let ended = tokio::spawn(serve(vec![listener.into()], router, limits, closing.clone()));
        Self { port, go_on, waits, given_up, closing, ended }
    }

    async fn connect(&self) -> Client {
        Client(TcpStream::connect(("127.0.0.1", self.port)).await.unwrap())
    }
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }
    async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    }
    /// Reads until the answer ends with `end`.
    async fn read_to(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        let reading = async {
            while !read.ends_with(end.as_bytes()) {
                let byte = self.0.read_u8().await.unwrap_or_else(|error| panic!("{error}: {read:?}"));
                read.push(byte);
            }
        };
        tokio::time::timeout(WAIT_MAX, reading).await.unwrap();
        String::from_utf8(read).unwrap()
    }
    async fn hello(&mut self) {
        self.get("/").await;
        assert!(self.read_to("hello").await.starts_with("HTTP/1.1 200"));
    }
    /// Waits until the server closes the connection; returns what it sent before.
    async fn closed(mut self) -> String {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(WAIT_MAX, self.0.read_to_end(&mut rest))
            .await
            .expect("the server does not close the connection");
        assert!(read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
        String::from_utf8_lossy(&rest).into_owned()
    }
}

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed_after_the_header_timeout() {
    let served = Served::new(ServerLimits { header_timeout: SHORT, ..limits() }).await;
    let (silent, mut half) = (served.connect().await, served.connect().await);
    half.send("GET / HTTP/1.1\r\nhost: loc").await;
    assert_eq!(silent.closed().await, "");
    assert_eq!(half.closed().await, "");
}

#[tokio::test]
async fn an_incomplete_second_head_is_closed_after_the_header_timeout() {
    let served = Served::new(ServerLimits { header_timeout: SHORT, ..limits() }).await;
    let mut client = served.connect().await;
    client.hello().await;
    client.send("GET /").await;
    assert_eq!(client.closed().await, "");
}

#[tokio::test]
async fn an_idle_connection_is_closed_by_the_idle_timeout_not_by_the_header_timeout() {
    let served = Served::new(ServerLimits { header_timeout: SHORT, ..limits() }).await;
    let mut idle = served.connect().await;
    idle.hello().await;
    served.connect().await.closed().await;
    idle.hello().await;

    let served = Served::new(ServerLimits { idle_timeout: SHORT, ..limits() }).await;
    let mut idle = served.connect().await;
    idle.hello().await;
    assert_eq!(idle.closed().await, "");
}

#[tokio::test]
async fn a_request_that_waits_for_its_answer_is_not_idle() {
    let served = Served::new(ServerLimits { header_timeout: SHORT, idle_timeout: SHORT, ..limits() }).await;
    let mut polling = served.connect().await;
    polling.get("/wait").await;
    served.waits.notified().await;
    // The idle timeout closes the second connection, and the header timeout the third.
    let mut idle = served.connect().await;
    idle.hello().await;
    idle.closed().await;
    served.connect().await.closed().await;
    served.go_on.notify_one();
    polling.read_to("done").await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_disconnected() {
    let served = Served::new(ServerLimits { write_timeout: SHORT, ..limits() }).await;
    let mut client = served.connect().await;
    client.get("/endless").await;
    tokio::time::timeout(WAIT_MAX, served.given_up.notified()).await.unwrap();
}

#[tokio::test]
async fn at_the_limit_the_longest_idle_connection_is_closed_for_a_new_one() {
    let served = Served::new(ServerLimits { connections_max: 2, ..limits() }).await;
    let (mut first, mut second) = (served.connect().await, served.connect().await);
    first.hello().await;
    second.hello().await;
    let mut third = served.connect().await;
    third.hello().await;
    assert_eq!(first.closed().await, "");
    second.hello().await;
}

#[tokio::test]
async fn at_the_limit_a_request_in_progress_is_not_closed() {
    let served = Served::new(ServerLimits { connections_max: 1, ..limits() }).await;
    let mut busy = served.connect().await;
    busy.get("/wait").await;
    served.waits.notified().await;
    let mut next = served.connect().await;
    next.get("/").await;
    served.go_on.notify_one();
    busy.read_to("done").await;
    // Now it is idle, so the server closes it for the new one.
    next.read_to("hello").await;
    assert_eq!(busy.closed().await, "");
}

#[tokio::test]
async fn a_stopping_server_completes_answers_in_progress_and_closes_idle_connections() {
    let served = Served::new(limits()).await;
    let (mut idle, fresh, mut busy) = (served.connect().await, served.connect().await, served.connect().await);
    idle.hello().await;
    busy.get("/wait").await;
    served.waits.notified().await;
    served.closing.cancel();
    idle.closed().await;
    fresh.closed().await;
    assert!(!served.ended.is_finished());
    served.go_on.notify_one();
    let answer = busy.closed().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    tokio::time::timeout(WAIT_MAX, served.ended).await.unwrap().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", served.port)).await.is_err());
}

#[tokio::test]
async fn a_request_with_more_than_a_hundred_headers_is_refused() {
    let served = Served::new(limits()).await;
    let head = |count: usize| format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(count - 1));
    let mut client = served.connect().await;
    client.send(&head(100)).await;
    client.read_to("hello").await;
    client.send(&head(101)).await;
    assert!(client.closed().await.starts_with("HTTP/1.1 431"));
}

#[test]
fn the_default_limits_are_the_documented_ones() {
    let limits = ServerLimits::default();
    let page = include_str!("../../../../docs/reference/limits.md");
    for (what, documented) in [
        (
            "the head of a request, also the first byte of a new connection, and its TLS handshake",
            format!("{} s", limits.header_timeout.as_secs()),
        ),
        ("a connection that waits for its next request", format!("{} s", limits.idle_timeout.as_secs())),
        ("a client that reads nothing of its answer", format!("{} s", limits.write_timeout.as_secs())),
        ("headers of one request", format!("{}, and 64 KiB in total", limits.headers_max)),
        ("connections of one address, except this machine", limits.connections_per_peer_max.to_string()),
    ] {
        assert!(page.contains(&format!("\n| {what} | {documented} |")), "{what}: {documented}");
    }
    let most = "at most 16,384";
    assert!(page.contains(most) && limits.connections_max == 16_384, "{}", limits.connections_max);
}
