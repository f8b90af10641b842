//! The TLS settings of `everytick serve`.

use std::path::PathBuf;

use everytick_api::{ClientAuth, TlsFiles};
use serde::Deserialize;

use crate::failure::Failure;

/// Whether clients show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TlsClientAuth {
    #[default]
    None,
    Optional,
    Required,
}

/// The settings as they were given.
#[derive(Debug, Default)]
pub(crate) struct TlsSettings {
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: Option<TlsClientAuth>,
}

impl TlsSettings {
    /// `None` without a certificate. A setting without the other settings that it needs is refused.
    pub(crate) fn files(self) -> Result<Option<TlsFiles>, Failure> {
        let client_auth = self.client_auth.unwrap_or_default();
        let wrong = |message: &str| Err(Failure::usage(message));
        let (cert, key) = match (self.cert, self.key) {
            (Some(cert), Some(key)) => (cert, key),
            (Some(_), None) => return wrong("--tls-cert: the key is missing; write its file with --tls-key"),
            (None, Some(_)) => return wrong("--tls-key: the certificate is missing; write its file with --tls-cert"),
            (None, None) if self.client_ca.is_some() || client_auth != TlsClientAuth::None => {
                return wrong(
                    "--tls-client-auth and --tls-client-ca need a TLS listener; write --tls-cert and --tls-key",
                );
            }
            (None, None) => return Ok(None),
        };
        let client_auth = match (client_auth, &self.client_ca) {
            (TlsClientAuth::None, Some(_)) => {
                return wrong("--tls-client-ca has no effect without --tls-client-auth optional or required; add one");
            }
            (TlsClientAuth::Optional | TlsClientAuth::Required, None) => {
                return wrong(
                    "--tls-client-auth: the authority of the clients is missing; write its file with --tls-client-ca",
                );
            }
            (TlsClientAuth::None, None) => ClientAuth::None,
            (TlsClientAuth::Optional, Some(_)) => ClientAuth::Optional,
            (TlsClientAuth::Required, Some(_)) => ClientAuth::Required,
        };
        Ok(Some(TlsFiles { cert, key, client_ca: self.client_ca, client_auth }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_the_settings_that_it_needs_is_refused() {
        let files = |given: [bool; 3], client_auth: Option<TlsClientAuth>| {
            let [cert, key, client_ca] = given.map(|given| given.then(|| PathBuf::from("f")));
            TlsSettings { cert, key, client_ca, client_auth }.files().map_err(|failure| failure.to_string())
        };
        let (optional, required) = (Some(TlsClientAuth::Optional), Some(TlsClientAuth::Required));
        assert_eq!(files([false; 3], None), Ok(None));
        assert_eq!(files([false; 3], Some(TlsClientAuth::None)), Ok(None));
        let auth = |given, client_auth| files(given, client_auth).unwrap().unwrap().client_auth;
        assert_eq!(auth([true, true, false], None), ClientAuth::None);
        assert_eq!(auth([true, true, true], optional), ClientAuth::Optional);
        assert_eq!(auth([true, true, true], required), ClientAuth::Required);
        for (given, client_auth, expected) in [
            ([true, false, false], None, "write its file with --tls-key"),
            ([false, true, false], None, "write its file with --tls-cert"),
            ([false, false, true], None, "write --tls-cert and --tls-key"),
            ([false, false, false], required, "write --tls-cert and --tls-key"),
            ([true, true, true], None, "--tls-client-auth optional or required"),
            ([true, true, false], optional, "write its file with --tls-client-ca"),
        ] {
            let message = files(given, client_auth).unwrap_err();
            assert!(message.contains(expected), "{given:?} {client_auth:?}: {message}");
        }
    }
}
