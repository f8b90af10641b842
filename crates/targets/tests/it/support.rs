//! A default dispatch, a listener for live output, and receivers.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, Method, Uri},
    response::Response,
    serve::ListenerExt,
};
use everytick_domain::{
    ids::{Cause, Fence, JobId, RunId, TenantId},
    target::{HttpTarget, Outcome, TargetSpec},
    time::{DbTime, Span},
};
use everytick_targets::{
    AddressPolicy, Discard, Dispatch, LiveOutput, Secrets, ShellSettings, Stream, Target, TargetSettings, Targets,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

/// Longest time that a test waits for an expected event.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Short, because a command that ignores TERM uses all of it. Long enough for other commands on a busy machine.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

pub(crate) fn dispatch(target: TargetSpec) -> Dispatch {
    let job_id = JobId::new(DbTime::EPOCH, [7; 10]);
    let scheduled_at = "2026-11-16T07:00:00Z".parse().unwrap();
    Dispatch {
        run: RunId::of(job_id, Cause::Tick(scheduled_at)),
        job_id,
        tenant: TenantId::DEFAULT,
        job: "nightly-report".to_owned(),
        cause: "tick",
        scheduled_at,
        attempt: 2,
        fence: Fence::from_raw(41),
        node: "node-1".to_owned(),
        now: "2026-11-16T07:00:05.250Z".parse().unwrap(),
        payload: Some(r#"{"report":"daily"}"#.to_owned()),
        timeout: Span::from(WAIT_MAX),
        target,
        run_token: Some("etr_0".to_owned()),
        secrets: Secrets::default(),
    }
}

pub(crate) fn http(url: impl Into<String>) -> HttpTarget {
    HttpTarget::post(url.into())
}

pub(crate) fn post(url: impl Into<String>) -> Dispatch {
    dispatch(TargetSpec::Http(http(url)))
}

/// Targets that may deliver to loopback addresses and to the shell.
pub(crate) fn targets() -> Targets {
    let loopback = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
    let shell = Some(shell());
    started(TargetSettings { addresses: loopback, shell, ..TargetSettings::default() })
}

/// Commands under the supervisor of this crate.
pub(crate) fn shell() -> ShellSettings {
    ShellSettings { grace: GRACE, launcher: env!("CARGO_BIN_EXE_exec-command").into(), ..ShellSettings::new(None) }
}

pub(crate) fn started(settings: TargetSettings) -> Targets {
    Targets::start(&settings).unwrap()
}

pub(crate) async fn deliver(dispatch: &Dispatch) -> Outcome {
    targets().deliver(dispatch, &Discard, &CancellationToken::new()).await
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, future).await.unwrap_or_else(|_| panic!("not within {WAIT_MAX:?}: {what}"))
}

/// Records the output of a command and wakes waiting tests.
#[derive(Default)]
pub(crate) struct LiveLines {
    chunks: Mutex<Vec<(Stream, Vec<u8>)>>,
    more: Notify,
}

impl LiveOutput for LiveLines {
    fn push(&self, stream: Stream, chunk: &[u8]) {
        self.chunks.lock().unwrap().push((stream, chunk.to_vec()));
        self.more.notify_one();
    }
}

impl LiveLines {
    pub(crate) fn text(&self, of: Stream) -> String {
        let chunks = self.chunks.lock().unwrap();
        let bytes: Vec<u8> = chunks.iter().filter(|(stream, _)| *stream == of).flat_map(|(_, c)| c.clone()).collect();
        String::from_utf8(bytes).unwrap()
    }

    /// Waits for the first `count` complete lines of stdout.
    pub(crate) async fn lines(&self, count: usize) -> Vec<String> {
        within("lines of output", async {
            loop {
                let text = self.text(Stream::Stdout);
                if text.matches('\n').count() >= count {
                    return text.lines().take(count).map(str::to_owned).collect();
                }
                self.more.notified().await;
            }
        })
        .await
    }
}

/// A request that a receiver got.
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// An HTTP server that records requests and always gives the same answer.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Receiver {
    pub(crate) async fn answering(answer: impl Fn() -> Response + Send + Sync + 'static) -> Self {
        Self::listening("127.0.0.1:0", answer).await
    }

    /// Accepts every connection to a port of this machine, over IPv4 and IPv6.
    pub(crate) async fn everywhere() -> Self {
        Self::listening("[::]:0", || Response::new(Body::empty())).await
    }

    async fn listening(on: &str, answer: impl Fn() -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(on).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        let app = Router::new().fallback(move |request: Request| {
            let (sender, answer) = (sender.clone(), Arc::clone(&answer));
            async move {
                let (head, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let body = String::from_utf8(body.to_vec()).unwrap();
                sender.send(Seen { method: head.method, uri: head.uri, headers: head.headers, body }).unwrap();
                answer()
            }
        });
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let listener = listener.tap_io(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, connections, seen }
    }

    pub(crate) async fn with_status(status: u16) -> Self {
        Self::answering(move || Response::builder().status(status).body(Body::from("the body")).unwrap()).await
    }

    pub(crate) async fn with_header(status: u16, name: &'static str, value: &'static str) -> Self {
        Self::answering(move || Response::builder().status(status).header(name, value).body(Body::empty()).unwrap())
            .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// All requests so far.
    pub(crate) fn seen(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }

    pub(crate) fn only(&mut self) -> Seen {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "exactly one request must be sent");
        seen.remove(0)
    }
}

/// A server that answers one request with exactly `bytes` and closes the connection.
pub(crate) async fn breaking_off_after(bytes: &'static str) -> SocketAddr {
    let (address, _) = one_connection(move |mut stream| async move {
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    address
}

/// A server that answers one request with this many informational answers, and then with 200.
pub(crate) async fn informing(count: usize) -> SocketAddr {
    let (address, _) = one_connection(move |mut stream| async move {
        for _ in 0..count {
            if stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await.is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        // Closing with unread data would reset the connection.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    })
    .await;
    address
}

/// A server that answers the first request of each connection, and then treats the connection as `then` does. Records the value
/// of the header `everytick-run` of each request that arrived, complete or not.
pub(crate) async fn answering_once<F: Future<Output = ()> + Send>(
    then: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<Vec<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::<Vec<String>>::new())));
    let records = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = {
                let mut records = records.lock().unwrap();
                records.push(Vec::new());
                records.len() - 1
            };
            let (records, then) = (Arc::clone(&records), then.clone());
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(br#"{"report":"daily"}"#) {
                    if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
                        return;
                    }
                }
                let text = String::from_utf8(request).unwrap();
                let run = text.lines().find_map(|line| line.strip_prefix("everytick-run: ")).unwrap().to_owned();
                records.lock().unwrap()[number].push(run);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                then(stream).await;
            });
        }
    });
    (address, seen)
}

/// A server that answers one request with `bytes` and then waits. The receivers report that the request arrived, and that the
/// client disconnected.
pub(crate) async fn stalling_after(bytes: &'static str) -> (SocketAddr, oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let (gone, left) = oneshot::channel();
    let (address, arrived) = one_connection(move |mut stream| async move {
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        let _ = gone.send(());
    })
    .await;
    (address, arrived, left)
}

/// A server that answers one request with an endless body.
pub(crate) async fn endless() -> SocketAddr {
    let (address, _) = one_connection(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while stream.write_all(&[b'x'; 64 * 1024]).await.is_ok() {}
    })
    .await;
    address
}

async fn one_connection<F: Future<Output = ()> + Send>(
    then: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, arrived) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.windows(4).any(|four| four == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request ended early");
        }
        let _ = sender.send(());
        then(stream).await;
    });
    (address, arrived)
}
