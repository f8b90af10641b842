//! The certificate of the TLS listeners: read from files, and replaced while the server runs.
//!
//! If new files cannot be used, the previous certificate stays in use, the error is logged, and the gauge
//! `everytick_tls_reload_failed` is 1 until the files are right. Connections that are open keep the configuration with
//! which they began.

mod files;
mod handshake;
mod x509;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, UNIX_EPOCH},
};

use everytick_domain::time::Span;
use rustls::{
    DEFAULT_VERSIONS, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::sync::Notify;

use files::Pems;
pub use files::{ClientAuth, TlsFiles};
pub(super) use handshake::secure;
pub use x509::ClientCertificate;

/// How often the server checks whether the files have changed.
pub const TLS_CHECK_EVERY: Duration = Duration::from_secs(30);
/// HTTP/2 is not offered. A client that reads all streams but one blocks no write to the connection, so `write_timeout` would never
/// apply. And many long requests on one connection would count as one connection.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];
/// The log warns of a certificate that expires sooner than this.
const EXPIRY_WARNING_SECONDS: i64 = 14 * DAY_SECONDS;
const DAY_SECONDS: i64 = 24 * 3_600;

/// The TLS settings of a server. Clones share the certificate.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    current: RwLock<Loaded>,
    /// The files at the last check, or why they could not be read.
    seen: Mutex<Result<blake3::Hash, String>>,
}

#[derive(Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// When the certificate ends, in seconds since 1970.
    ends: Option<i64>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.files).finish()
    }
}

impl Tls {
    /// Reads the files. An error names the flag, the file and the remedy.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let pems = Pems::read(&files)?;
        let loaded = Loaded::new(&pems, &files)?;
        let seen = Mutex::new(Ok(pems.fingerprint()));
        let tls = Self(Arc::new(Shared { files, current: RwLock::new(loaded), seen }));
        tls.warn_of_expiry();
        Ok(tls)
    }

    fn current(&self) -> Loaded {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again at each notification of `requests`. Also checks at this interval whether they have changed.
    pub async fn watch(self, every: Duration, requests: Arc<Notify>) {
        metrics::gauge!("everytick_tls_reload_failed").set(0.0);
        self.measure();
        loop {
            let is_requested = tokio::select! {
                () = requests.notified() => true,
                () = tokio::time::sleep(every) => false,
            };
            let tls = self.clone();
            // A slow disk must not delay other tasks. Both functions log an error.
            let reloading = move || if is_requested { tls.reload() } else { tls.reload_changed() };
            let _ = tokio::task::spawn_blocking(reloading).await;
            self.measure();
        }
    }

    /// Reads the files again. After an error, the previous certificate stays in use.
    pub fn reload(&self) -> Result<(), String> {
        let read = Pems::read(&self.0.files);
        self.note(&read);
        self.replace(read)
    }

    fn reload_changed(&self) -> Result<(), String> {
        let read = Pems::read(&self.0.files);
        if self.note(&read) { self.replace(read) } else { Ok(()) }
    }

    /// Whether the files differ from those at the last check.
    fn note(&self, read: &Result<Pems, String>) -> bool {
        let found = read.as_ref().map(Pems::fingerprint).map_err(Clone::clone);
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = *seen != found;
        *seen = found;
        differs
    }

    fn replace(&self, read: Result<Pems, String>) -> Result<(), String> {
        let files = &self.0.files;
        let loaded = read.and_then(|pems| Loaded::new(&pems, files)).inspect_err(|error| {
            metrics::gauge!("everytick_tls_reload_failed").set(1.0);
            tracing::error!(error, "could not load the TLS certificate; the previous one stays in use");
        })?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        metrics::gauge!("everytick_tls_reload_failed").set(0.0);
        tracing::info!(certificate = %files.cert.display(), "loaded the TLS certificate");
        self.warn_of_expiry();
        Ok(())
    }

    /// How long the certificate is still valid: zero if it has expired, `None` if it does not say.
    #[must_use]
    pub fn time_left(&self) -> Option<Span> {
        self.seconds_left().map(|seconds| Span::seconds(seconds.max(0).unsigned_abs()))
    }

    fn seconds_left(&self) -> Option<i64> {
        Some(self.current().ends? - now())
    }

    fn measure(&self) {
        if let Some(left) = self.seconds_left() {
            metrics::gauge!("everytick_tls_cert_expiry_seconds").set(left as f64);
        }
    }

    fn warn_of_expiry(&self) {
        let Some(left) = self.seconds_left() else { return };
        let certificate = self.0.files.cert.display();
        if left <= 0 {
            tracing::warn!(%certificate, "the TLS certificate has expired; clients refuse it");
        } else if left < EXPIRY_WARNING_SECONDS {
            tracing::warn!(%certificate, "the TLS certificate expires in {} days", left / DAY_SECONDS);
        }
    }
}

impl Loaded {
    fn new(pems: &Pems, files: &TlsFiles) -> Result<Self, String> {
        let (cert, key) = (files.cert.display(), files.key.display());
        let chain = certificates(&pems.cert).map_err(|wrong| format!("--tls-cert: {cert} {wrong}"))?;
        let ends = chain.first().and_then(|leaf| x509::not_after(leaf));
        let private = PrivateKeyDer::from_pem_slice(&pems.key)
            .map_err(|_| format!("--tls-key: {key} has no private key in PEM form without a password"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(|error| format!("could not set up TLS: {error}"))?;
        let builder = match client_verifier(pems, files, &provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, private).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("--tls-key: {key} is not the key of the certificate in {cert}; write the files of one pair")
            }
            error => format!("--tls-cert: {cert} and {key} cannot be used: {error}"),
        })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Self { config: Arc::new(config), ends })
    }
}

fn client_verifier(
    pems: &Pems,
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let (Some(pem), Some(path)) = (&pems.client_ca, &files.client_ca) else { return Ok(None) };
    let wrong = |reason: String| format!("--tls-client-ca: {} {reason}", path.display());
    let mut roots = RootCertStore::empty();
    for authority in certificates(pem).map_err(wrong)? {
        roots.add(authority).map_err(|error| wrong(format!("has a certificate that cannot be used: {error}")))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = match files.client_auth {
        ClientAuth::None => return Ok(None),
        ClientAuth::Optional => builder.allow_unauthenticated(),
        ClientAuth::Required => builder,
    };
    builder.build().map(Some).map_err(|error| wrong(format!("cannot be used: {error}")))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("has no certificate in PEM form (-----BEGIN CERTIFICATE-----)".to_owned()),
        Err(_) => Err("is not valid PEM".to_owned()),
    }
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "certificates end by the wall clock; schedules nothing")]
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
