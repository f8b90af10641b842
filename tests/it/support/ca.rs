//! A certificate authority of one test. It issues certificates for servers and clients.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM form.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate, in PEM form.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these host names and addresses.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> Pair {
        self.issue_with(name, hosts, |_| {})
    }

    pub(crate) fn issue_expired(&self, name: &str, hosts: &[&str]) -> Pair {
        self.issue_with(name, hosts, |params| params.not_after = date_time_ymd(2020, 1, 1))
    }

    fn issue_with(&self, name: &str, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}
