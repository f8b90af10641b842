//! How to reach a server: its address, the certificates for TLS, and what a failed connection means. Workers and the command line
//! use this code.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Certificate, ClientBuilder, Identity, Response, StatusCode, Url, redirect};
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::WorkerError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest file of certificates that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// PEM files for a server with TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Certificates {
    /// Trust only the authorities in this file, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Show this certificate to the server.
    pub client_cert: Option<PathBuf>,
    /// The private key of `client_cert`.
    pub client_key: Option<PathBuf>,
}

/// A server: `http://host:port`, `https://host:port`, or `unix:/path/to/socket`.
#[derive(Clone, Debug)]
pub struct Server {
    url: Url,
    socket: Option<PathBuf>,
    certificates: Certificates,
}

impl Server {
    pub fn new(address: &str, certificates: Certificates) -> Result<Self, WorkerError> {
        let wrong = || WorkerError::Address(address.to_owned());
        let socket = address.strip_prefix("unix:").map(PathBuf::from);
        if socket.as_ref().is_some_and(|path| path.file_name().is_none()) {
            return Err(wrong());
        }
        let url = if socket.is_some() { "http://localhost" } else { address };
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        Ok(Self { url: url.ok_or_else(wrong)?, socket, certificates })
    }

    /// The base of the URLs of requests.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// The path of the Unix socket, if the server is reached through one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The address for messages: without a password, and without a slash at the end.
    #[must_use]
    pub fn shown(&self) -> String {
        if let Some(path) = &self.socket {
            return format!("unix:{}", path.display());
        }
        let mut url = self.url.clone();
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// A client for this server only: no redirects, no proxy.
    pub fn client(&self, agent: &str) -> Result<ClientBuilder, WorkerError> {
        let mut builder = ClientBuilder::new()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .user_agent(agent);
        if let Some(path) = &self.socket {
            builder = builder.unix_socket(path.clone());
        }
        if let Some(path) = &self.certificates.ca_file {
            let wrong = |reason: &str| WorkerError::Certificate(format!("--ca-file: {} {reason}", path.display()));
            let found =
                Certificate::from_pem_bundle(&read("--ca-file", path)?).map_err(|_| wrong("is not valid PEM"))?;
            if found.is_empty() {
                return Err(wrong("has no certificate in PEM form (-----BEGIN CERTIFICATE-----)"));
            }
            builder = builder.tls_certs_only(found);
        }
        match (&self.certificates.client_cert, &self.certificates.client_key) {
            (Some(cert), Some(key)) => {
                let mut pem = read("--client-key", key)?;
                pem.push(b'\n');
                pem.extend(read("--client-cert", cert)?);
                let identity = Identity::from_pem(&pem).map_err(|_| {
                    WorkerError::Certificate(format!(
                        "--client-cert: {} has no certificate, or {} has no private key, in PEM form without a password",
                        cert.display(),
                        key.display()
                    ))
                })?;
                Ok(builder.identity(identity))
            }
            (None, None) => Ok(builder),
            (Some(_), None) => Err(WorkerError::Certificate(
                "--client-cert: the key is missing; write its file with --client-key".into(),
            )),
            (None, Some(_)) => Err(WorkerError::Certificate(
                "--client-key: the certificate is missing; write its file with --client-cert".into(),
            )),
        }
    }

    /// What to change when TLS failed, or was expected and is missing. `None` for other errors.
    #[must_use]
    pub fn tls_problem(&self, error: &reqwest::Error) -> Option<String> {
        let at = self.shown();
        match tls_error(error)? {
            TlsError::InvalidCertificate(reason) => Some(self.wrong_certificate(reason)),
            TlsError::AlertReceived(alert) => Some(self.refused(*alert)),
            TlsError::InvalidMessage(_) => {
                Some(format!("{at} does not use TLS; write {}", at.replacen("https://", "http://", 1)))
            }
            other => Some(format!("no TLS connection to {at} is possible: {other}")),
        }
    }

    /// Why the server's certificate is refused.
    fn wrong_certificate(&self, reason: &CertificateError) -> String {
        let (at, host) = (self.shown(), self.url.host_str().unwrap_or_default());
        match reason {
            CertificateError::UnknownIssuer => match &self.certificates.ca_file {
                Some(path) => format!(
                    "the certificate of {at} was not issued by an authority in {}; write the file of its authority with --ca-file",
                    path.display()
                ),
                None => format!(
                    "the certificate of {at} was not issued by an authority that this system trusts; write the file of its \
                     authority with --ca-file"
                ),
            },
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!(
                    "the certificate of {at} has expired; replace the files of --tls-cert and --tls-key on the server"
                )
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("the certificate of {at} is not valid yet; compare the clocks of both machines")
            }
            CertificateError::NotValidForName => {
                format!("the certificate of {at} is not valid for {host:?}; use the name that it was issued for")
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| certificate_name(name)).collect();
                format!(
                    "the certificate of {at} is not valid for {host:?}; use a name that it was issued for: {}",
                    if names.is_empty() { "it has none".to_owned() } else { names.join(", ") }
                )
            }
            other => format!("the certificate of {at} cannot be used: {other}"),
        }
    }

    /// Why the server refuses the handshake.
    fn refused(&self, alert: AlertDescription) -> String {
        let at = self.shown();
        let own = self.certificates.client_cert.as_ref().map(|path| path.display().to_string());
        match (alert, own) {
            (_, None) => {
                format!("{at} accepts only clients with a certificate; write yours with --client-cert and --client-key")
            }
            (AlertDescription::CertificateExpired, Some(own)) => {
                format!("{at} refuses the certificate in {own}: it has expired; write a new one with --client-cert")
            }
            (AlertDescription::UnknownCA | AlertDescription::DecryptError, Some(own)) => format!(
                "{at} refuses the certificate in {own}: the server's --tls-client-ca did not issue it; write another one \
                 with --client-cert"
            ),
            (alert, Some(own)) => format!("{at} refuses the certificate in {own} ({alert:?})"),
        }
    }

    /// What to change if the answer to a plain HTTP request states that the server expects TLS; otherwise `None`. Reads the answer.
    pub async fn expects_tls(&self, status: StatusCode, response: Response) -> Option<String> {
        if self.url.scheme() != "http" || status != StatusCode::BAD_REQUEST {
            return None;
        }
        let text = response.text().await.unwrap_or_default();
        let at = self.shown();
        ["TLS", "HTTPS"]
            .iter()
            .any(|word| text.contains(word))
            .then(|| format!("{at} expects TLS; write {}", at.replacen("http://", "https://", 1)))
    }
}

/// A name of a certificate without its kind. rustls writes `DnsName("jobs.example.org")` and `IpAddress(10.0.0.5)`.
fn certificate_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// The error of TLS among the causes. An `io::Error` does not list the error that it contains as its source.
fn tls_error(error: &reqwest::Error) -> Option<&TlsError> {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(cause) = next {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn Error + 'static));
        if let Some(found) = inner.into_iter().chain([cause]).find_map(|cause| cause.downcast_ref()) {
            return Some(found);
        }
        next = inner.or_else(|| cause.source());
    }
    None
}

/// The message of an error of the operating system without its number.
pub(crate) fn without_number(message: &str) -> &str {
    message.split(" (os error ").next().unwrap_or_default()
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, WorkerError> {
    let wrong = |reason: &str| WorkerError::Certificate(format!("{flag}: could not read {}: {reason}", path.display()));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => wrong("there is no such file"),
        io::ErrorKind::IsADirectory => wrong("it is a directory; name a file"),
        io::ErrorKind::PermissionDenied => wrong("the permission is missing"),
        _ => wrong(without_number(&error.to_string())),
    };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong(&format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    fs::read(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_a_unix_socket_and_is_shown_without_a_password() {
        let shown = |address: &str| Server::new(address, Certificates::default()).map(|server| server.shown()).ok();
        assert_eq!(shown("https://me:hunter2@h:1/").as_deref(), Some("https://h:1"));
        assert_eq!(shown("unix:/run/everytick/api.sock").as_deref(), Some("unix:/run/everytick/api.sock"));
        for wrong in ["", "unix:", "unix:/", "ftp://h", "h:1", "http://"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn wrong_files_are_refused_with_the_flag() {
        let dir = std::env::current_dir().unwrap();
        let file = || Some(dir.join("Cargo.toml"));
        for (certificates, expected) in [
            (
                Certificates { ca_file: Some("/no/such".into()), ..Default::default() },
                "--ca-file: could not read /no/such",
            ),
            (Certificates { ca_file: file(), ..Default::default() }, "has no certificate in PEM form"),
            (Certificates { client_cert: file(), ..Default::default() }, "write its file with --client-key"),
            (Certificates { client_key: file(), ..Default::default() }, "write its file with --client-cert"),
            (Certificates { client_cert: file(), client_key: file(), ..Default::default() }, "has no private key"),
        ] {
            let server = Server::new("https://h", certificates).unwrap();
            let message = server.client("test").unwrap_err().to_string();
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }
}
