//! The HTTP clients of jobs that show a client certificate: one for each version of a certificate, so that connections with one
//! certificate are never used for another. The least recently used client is dropped.

use std::{
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hasher as _},
    sync::{Mutex, PoisonError},
};

use everytick_domain::ids::{TenantId, Version};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::connect::{Client, Identity};
use crate::SecretValue;

/// Maximum number of clients with a certificate that one node keeps.
const CLIENTS_MAX: usize = 100;

/// The certificate of one delivery.
pub(super) struct CertificateKey<'d> {
    pub(super) tenant: TenantId,
    pub(super) name: &'d str,
    pub(super) value: &'d SecretValue,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    tenant: TenantId,
    name: String,
    version: Version,
    /// A fingerprint of the value: a secret that was deleted and created again has the same version number.
    value: u64,
    api_port: bool,
}

struct Entry {
    client: Client,
    /// The value of `Clients::uses` at its last use.
    used: u64,
}

#[derive(Default)]
pub(super) struct CertifiedClients(Mutex<Clients>);

#[derive(Default)]
struct Clients {
    by_place: HashMap<Place, Entry>,
    uses: u64,
}

impl fmt::Debug for CertifiedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertifiedClients").finish_non_exhaustive()
    }
}

impl CertifiedClients {
    /// The client for a certificate. `api_port` separates clients that refuse the API of the cluster.
    pub(super) fn client(
        &self,
        certificate: &CertificateKey<'_>,
        api_port: bool,
        build: impl FnOnce(Identity) -> Result<Client, rustls::Error>,
    ) -> Result<Client, String> {
        let CertificateKey { tenant, name, value } = certificate;
        let mut hasher = DefaultHasher::new();
        hasher.write(&value.current);
        let place = Place {
            tenant: *tenant,
            name: (*name).to_owned(),
            version: value.version,
            value: hasher.finish(),
            api_port,
        };
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clients.uses += 1;
        let used = clients.uses;
        if let Some(entry) = clients.by_place.get_mut(&place) {
            entry.used = used;
            return Ok(entry.client.clone());
        }
        let wrong = || {
            format!(
                "the secret {name:?} cannot be used as a client certificate; it needs the certificate, its chain and its key \
                 in PEM"
            )
        };
        let client = read(&value.current).and_then(|identity| build(identity).ok()).ok_or_else(wrong)?;
        if clients.by_place.len() >= CLIENTS_MAX {
            let oldest = clients.by_place.iter().min_by_key(|(_, entry)| entry.used).map(|(place, _)| place.clone());
            oldest.map(|place| clients.by_place.remove(&place));
        }
        clients.by_place.insert(place, Entry { client: client.clone(), used });
        Ok(client)
    }
}

/// The certificates and the key of a PEM text, in any order.
fn read(pem: &[u8]) -> Option<Identity> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
    (!chain.is_empty()).then_some(Identity { chain, key })
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn value(version: i64, text: &str) -> SecretValue {
        let current = Zeroizing::new(text.as_bytes().to_vec());
        SecretValue { version: Version::from_raw(version), current, previous: None }
    }

    #[test]
    fn a_value_that_is_no_certificate_is_refused_without_being_repeated() {
        let clients = CertifiedClients::default();
        let key = CertificateKey { tenant: TenantId::DEFAULT, name: "cert", value: &value(1, "hunter2") };
        let error = clients.client(&key, false, |_| panic!("no certificate was read")).unwrap_err();
        assert!(error.contains("\"cert\"") && !error.contains("hunter2"), "{error}");
    }
}
