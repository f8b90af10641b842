//! Webhooks through a CONNECT proxy, and what the proxy learns.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use everytick_domain::target::{Outcome, Retry};
use everytick_targets::{AddressPolicy, Discard, EgressPolicy, EgressProxy, Target, TargetSettings};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::support::{Receiver, post, started};

/// The first line of each request, and its credentials.
type Requests = Mutex<Vec<(String, Option<String>)>>;

/// A proxy that makes tunnels to literal addresses, and to any name of this machine. Records the first line and the credentials of
/// each request.
struct ConnectProxy {
    address: SocketAddr,
    seen: Arc<Requests>,
}

impl ConnectProxy {
    /// `refusal` is the status line of every answer, if the proxy makes no tunnels.
    async fn start(refusal: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Requests::default()));
        let records = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, refusal, Arc::clone(&records)));
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    fn settings(&self, resolves: bool) -> TargetSettings {
        let proxy = format!("http://{}", self.address).parse::<EgressProxy>().unwrap().resolving(resolves);
        let addresses = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        TargetSettings { addresses, proxy: Some(proxy), ..TargetSettings::default() }
    }
}

async fn serve(stream: TcpStream, refusal: Option<&str>, seen: Arc<Requests>) {
    let mut stream = BufReader::new(stream);
    let (mut lines, mut line) = (Vec::new(), String::new());
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
        lines.push(std::mem::take(&mut line).trim().to_owned());
    }
    let authorization = lines.iter().find_map(|line| {
        line.to_lowercase().strip_prefix("proxy-authorization: ").map(|_| line.split_once(' ').unwrap().1.to_owned())
    });
    let first = lines.first().cloned().unwrap_or_default();
    let to = first.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push((first, authorization));
    if let Some(refusal) = refusal {
        let _ = stream.write_all(format!("HTTP/1.1 {refusal}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
        return;
    }
    // A proxy has its own names: here every name is this machine.
    let Some(port) = to.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()) else { return };
    let Ok(mut receiver) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    if stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
        let _ = copy_bidirectional(&mut stream, &mut receiver).await;
    }
}

async fn send(settings: TargetSettings, url: String) -> Outcome {
    started(settings).deliver(&post(url), &Discard, &CancellationToken::new()).await
}

#[tokio::test]
async fn a_proxy_gets_the_checked_address_and_the_receiver_the_name() {
    let (proxy, mut receiver) = (ConnectProxy::start(None).await, Receiver::with_status(200).await);
    let port = receiver.address.port();
    for host in ["localhost", "127.0.0.1"] {
        let outcome = send(proxy.settings(false), format!("http://{host}:{port}/hook")).await;
        assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
        assert_eq!(proxy.seen(), [(format!("CONNECT 127.0.0.1:{port} HTTP/1.1"), None)]);
        let seen = receiver.only();
        assert_eq!(seen.uri.to_string(), "/hook", "the request is not for a proxy");
        assert_eq!(seen.header("host"), Some(format!("{host}:{port}").as_str()));
    }
}

#[tokio::test]
async fn a_refused_address_is_not_given_to_the_proxy() {
    let (proxy, mut receiver) = (ConnectProxy::start(None).await, Receiver::with_status(200).await);
    let port = receiver.address.port();
    let strict = || TargetSettings { addresses: AddressPolicy::default(), ..proxy.settings(false) };
    for host in ["localhost", "127.0.0.1", "[::1]", "169.254.169.254", "0x7f.1", "[::ffff:127.0.0.1]"] {
        let outcome = send(strict(), format!("http://{host}:{port}/")).await;
        assert!(matches!(outcome, Outcome::NotHere { .. }), "{host}: {outcome:?}");
    }
    let targets = started(proxy.settings(false));
    targets.forbid(vec![receiver.address]);
    for host in ["localhost", "127.0.0.1"] {
        let outcome =
            targets.deliver(&post(format!("http://{host}:{port}/")), &Discard, &CancellationToken::new()).await;
        let Outcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("is the API of a node"), "{error}");
    }
    assert_eq!((proxy.seen(), receiver.seen().len()), (Vec::new(), 0));
}

#[tokio::test]
async fn a_proxy_that_resolves_gets_the_name_and_only_hosts_and_ports_are_checked() {
    let (proxy, mut receiver) = (ConnectProxy::start(None).await, Receiver::with_status(200).await);
    let port = receiver.address.port();
    // Without TLS the proxy gets the request itself, which this one answers like a tunnel; so only its first line matters.
    let _ = send(proxy.settings(true), format!("http://hook.invalid:{port}/x?y")).await;
    assert_eq!(proxy.seen(), [(format!("GET http://hook.invalid:{port}/x?y HTTP/1.1").replace("GET", "POST"), None)]);
    let _ = send(proxy.settings(true), format!("https://hook.invalid:{port}/")).await;
    assert_eq!(proxy.seen(), [(format!("CONNECT hook.invalid:{port} HTTP/1.1"), None)]);
    let only = EgressPolicy { hosts: vec!["*.example.org".parse().unwrap()], ..EgressPolicy::default() };
    let outcome = send(TargetSettings { egress: only, ..proxy.settings(true) }, "https://hook.invalid/".into()).await;
    assert!(matches!(outcome, Outcome::Failed { retry: Retry::Never, .. }), "{outcome:?}");
    assert!(proxy.seen().is_empty());
    drop(receiver.seen());
}

#[tokio::test]
async fn the_credentials_of_the_proxy_reach_only_the_proxy() {
    let (proxy, mut receiver) = (ConnectProxy::start(None).await, Receiver::with_status(200).await);
    let url = format!("http://us%65r:hunter2@{}", proxy.address);
    let mut settings = proxy.settings(false);
    settings.proxy = Some(url.parse().unwrap());
    assert!(!format!("{settings:?}").contains("hunter2"));
    assert!(matches!(send(settings, receiver.url()).await, Outcome::Succeeded { .. }));
    assert_eq!(proxy.seen()[0].1.as_deref(), Some("Basic dXNlcjpodW50ZXIy"));
    assert_eq!(receiver.only().header("proxy-authorization"), None);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named() {
    for (status, expected) in
        [("403 Forbidden", "unsuccessful"), ("407 Proxy Authentication Required", "authorization")]
    {
        let (proxy, mut receiver) = (ConnectProxy::start(Some(status)).await, Receiver::with_status(200).await);
        let outcome = send(proxy.settings(false), receiver.url()).await;
        let Outcome::Failed { error, retry: Retry::Allowed, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains(&format!("the proxy {} did not connect", proxy.address)), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(receiver.seen().is_empty());
    }
}
