//! TLS listeners: handshakes under the limits of connections, certificates of clients, and a certificate that is replaced while
//! the server answers.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, routing::get};
use everytick_api::{ClientAuth, ClientCertificate, Listener, ServerLimits, Tls, TlsFiles, serve};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::ca::{Ca, Pair};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3_600);
/// Time limit for what must happen. The tests do not assert how soon it happens.
const WAIT_MAX: Duration = Duration::from_secs(60);

struct Served {
    port: u16,
    files: TlsFiles,
    tls: Tls,
    reload_requests: Arc<Notify>,
    closing: CancellationToken,
    ca: Ca,
    _dir: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

fn limits() -> ServerLimits {
    ServerLimits { header_timeout: LONG, idle_timeout: LONG, write_timeout: LONG, ..ServerLimits::default() }
}

fn write_key(path: &PathBuf, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn write(files: &TlsFiles, pair: &Pair) {
    fs::write(&files.cert, &pair.cert).unwrap();
    write_key(&files.key, &pair.key);
}

/// Files of a server whose certificate a new authority issued. The authority also issues certificates of clients.
fn files(dir: &TempDir, ca: &Ca, client_auth: ClientAuth) -> TlsFiles {
    let at = |name: &str| dir.path().join(name);
    fs::write(at("ca.pem"), ca.pem()).unwrap();
    let client_ca = (client_auth != ClientAuth::None).then(|| at("ca.pem"));
    let files = TlsFiles { cert: at("cert.pem"), key: at("key.pem"), client_ca, client_auth };
    write(&files, &ca.issue("first", &["localhost"]));
    files
}

impl Served {
    async fn new(limits: ServerLimits, client_auth: ClientAuth) -> Self {
        Self::checking(limits, client_auth, LONG).await
    }

    async fn checking(limits: ServerLimits, client_auth: ClientAuth, every: Duration) -> Self {
        let (ca, dir) = (Ca::new("test authority"), TempDir::new().unwrap());
        let files = files(&dir, &ca, client_auth);
        let show = async |certificate: Option<Extension<ClientCertificate>>| match certificate {
            Some(Extension(certificate)) => {
                format!("{} {}", certificate.subject(), certificate.alternative_names().join(" "))
            }
            None => "no certificate".to_owned(),
        };
        let router = Router::new().route("/", get(show));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tls, reload_requests, closing) =
            (Tls::load(files.clone()).unwrap(), Arc::new(Notify::new()), CancellationToken::new());
        tokio::spawn(tls.clone().watch(every, reload_requests.clone()));
        tokio::spawn(serve(vec![Listener::Tls(listener, tls.clone())], router, limits, closing.clone()));
        Self { port, files, tls, reload_requests, closing, ca, _dir: dir }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Connects with this certificate.
    async fn connect(&self, pair: Option<&Pair>) -> std::io::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(rustls::DEFAULT_VERSIONS);
        let builder = builder.unwrap().with_root_certificates(roots);
        let config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await?;
        Ok(Client(stream))
    }

    /// The answer to one request on a new connection.
    async fn request(&self, pair: Option<&Pair>) -> std::io::Result<String> {
        self.connect(pair).await?.request().await
    }
}

struct Client(TlsStream<TcpStream>);

impl Client {
    /// The body of the answer to one request.
    async fn request(&mut self) -> std::io::Result<String> {
        self.0.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if body.len() >= length.parse().unwrap() {
                    return Ok(body.to_owned());
                }
            }
            if self.0.read_buf(&mut read).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The certificate of the server.
    fn certificate(&self) -> Vec<u8> {
        self.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }
}

/// Everything that the server sends until it closes the connection.
async fn closed(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(WAIT_MAX, stream.read_to_end(&mut rest));
    read.await.expect("the server does not close the connection").unwrap();
    String::from_utf8_lossy(&rest).into_owned()
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_closed_after_the_header_timeout() {
    let served = Served::new(ServerLimits { header_timeout: SHORT, ..limits() }, ClientAuth::None).await;
    let (silent, mut half) = (served.tcp().await, served.tcp().await);
    half.write_all(&[22, 3, 1]).await.unwrap();
    assert_eq!((closed(silent).await, closed(half).await), (String::new(), String::new()));
    // The limit includes the time after the handshake, until the head is complete.
    let mut idle = served.connect(None).await.unwrap();
    let read = tokio::time::timeout(WAIT_MAX, idle.0.read_u8()).await;
    assert!(read.expect("the server does not close the connection").is_err());
}

#[tokio::test]
async fn a_handshake_counts_as_a_connection_and_the_oldest_one_is_closed_at_the_limit() {
    let served = Served::new(ServerLimits { connections_max: 1, ..limits() }, ClientAuth::None).await;
    let silent = served.tcp().await;
    assert_eq!(served.request(None).await.unwrap(), "no certificate");
    assert_eq!(closed(silent).await, "");
}

#[tokio::test]
async fn a_request_without_tls_gets_a_plain_answer_that_names_tls() {
    let served = Served::new(limits(), ClientAuth::Required).await;
    let mut plain = served.tcp().await;
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    plain.shutdown().await.unwrap();
    let answer = closed(plain).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("expects TLS"), "{answer}");
}

#[tokio::test]
async fn a_certificate_of_a_client_is_verified_and_passed_to_the_request() {
    let (required, optional, none) = (ClientAuth::Required, ClientAuth::Optional, ClientAuth::None);
    for (client_auth, without, with_other_ca, with_expired) in
        [(required, false, false, false), (optional, true, false, false), (none, true, true, true)]
    {
        let served = Served::new(limits(), client_auth).await;
        let good = served.ca.issue("worker-1", &["worker-1.example.org"]);
        let known = served.request(Some(&good)).await.unwrap();
        let expected = match client_auth {
            ClientAuth::None => "no certificate",
            ClientAuth::Optional | ClientAuth::Required => "CN=worker-1 DNS:worker-1.example.org",
        };
        assert_eq!(known, expected, "{client_auth:?}");
        let other = Ca::new("other authority").issue("worker-1", &["worker-1.example.org"]);
        let expired = served.ca.issue_expired("worker-1", &["worker-1.example.org"]);
        for (pair, accepted) in [(None, without), (Some(&other), with_other_ca), (Some(&expired), with_expired)] {
            let answer = served.request(pair).await;
            assert_eq!(answer.as_deref().ok(), accepted.then_some("no certificate"), "{client_auth:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_bad_pair_leaves_the_old_one_in_use() {
    let served = Served::new(limits(), ClientAuth::None).await;
    let first = served.connect(None).await.unwrap().certificate();
    let second = served.ca.issue("second", &["localhost"]);
    let other_key = served.ca.issue("third", &["localhost"]).key;
    for cert in ["not a certificate", &second.cert] {
        write(&served.files, &Pair { cert: cert.to_owned(), key: other_key.clone() });
        served.tls.reload().unwrap_err();
        assert_eq!(served.connect(None).await.unwrap().certificate(), first, "{cert}");
    }
    fs::remove_file(&served.files.key).unwrap();
    served.tls.reload().unwrap_err();
    assert_eq!(served.request(None).await.unwrap(), "no certificate");
    write(&served.files, &second);
    served.tls.reload().unwrap();
    assert_ne!(served.connect(None).await.unwrap().certificate(), first);
}

#[tokio::test]
async fn a_changed_certificate_is_found_and_used_for_new_connections() {
    let served = Served::checking(limits(), ClientAuth::None, Duration::from_millis(5)).await;
    let mut old = served.connect(None).await.unwrap();
    let first = old.certificate();
    write(&served.files, &served.ca.issue("second", &["localhost"]));
    let replaced = async {
        loop {
            let mut client = served.connect(None).await.unwrap();
            if client.certificate() != first {
                return client.request().await.unwrap();
            }
        }
    };
    assert_eq!(tokio::time::timeout(WAIT_MAX, replaced).await.unwrap(), "no certificate");
    assert_eq!(old.request().await.unwrap(), "no certificate", "an open connection keeps its certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_under_load_loses_no_request() {
    const RELOADS: usize = 40;
    let served = Arc::new(Served::new(limits(), ClientAuth::Optional).await);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (served, stop, answered) = (served.clone(), stop.clone(), answered.clone());
            tokio::spawn(async move {
                let mut kept = served.connect(None).await.unwrap();
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(served.request(None).await.unwrap(), "no certificate");
                    assert_eq!(kept.request().await.unwrap(), "no certificate");
                    answered.fetch_add(2, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for n in 0..RELOADS {
        // Every third pair is wrong.
        let (pair, other) = (served.ca.issue("next", &["localhost"]), served.ca.issue("other", &["localhost"]));
        let key = if n % 3 == 0 { other.key } else { pair.key };
        write(&served.files, &Pair { cert: pair.cert, key });
        let before = answered.load(Ordering::Relaxed);
        served.reload_requests.notify_one();
        while answered.load(Ordering::Relaxed) < before + 4 {
            assert!(clients.iter().all(|client| !client.is_finished()), "a request was lost");
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_with_the_flag_and_the_remedy() {
    let (ca, dir) = (Ca::new("test authority"), TempDir::new().unwrap());
    let good = files(&dir, &ca, ClientAuth::Required);
    let write_other = |name: &str, text: &str| {
        let path = dir.path().join(name);
        write_key(&path, text);
        path
    };
    let (no_pem, other_key) = (write_other("no.pem", "hello"), write_other("other.pem", &ca.issue("o", &[]).key));
    let readable = write_other("readable.pem", &ca.issue("o", &[]).key);
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).unwrap();
    let group = write_other("group.pem", &fs::read_to_string(&good.key).unwrap());
    fs::set_permissions(&group, fs::Permissions::from_mode(0o640)).unwrap();
    let missing = PathBuf::from("/no/such/file");
    for (files, parts) in [
        (
            TlsFiles { cert: missing.clone(), ..good.clone() },
            ["--tls-cert: could not read /no/such/file", "no such file"],
        ),
        (TlsFiles { cert: no_pem.clone(), ..good.clone() }, ["--tls-cert", "BEGIN CERTIFICATE"]),
        (TlsFiles { key: missing, ..good.clone() }, ["--tls-key: could not read", "no such file"]),
        (TlsFiles { key: no_pem.clone(), ..good.clone() }, ["--tls-key", "no private key"]),
        (TlsFiles { key: other_key, ..good.clone() }, ["--tls-key", "is not the key of the certificate"]),
        (TlsFiles { key: readable, ..good.clone() }, ["(mode 0644)", "run: chmod 600 "]),
        (TlsFiles { client_ca: Some(no_pem), ..good.clone() }, ["--tls-client-ca", "BEGIN CERTIFICATE"]),
    ] {
        let error = Tls::load(files).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
    Tls::load(TlsFiles { key: group, ..good }).unwrap();
}
