//! The addresses on which the nodes of the cluster serve their API. No webhook is sent there, even if the operator allows the
//! address range: a job could otherwise change other jobs through its own node.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
};

/// Clones share the same addresses.
#[derive(Clone, Debug, Default)]
pub struct OwnAddresses(Arc<RwLock<Vec<SocketAddr>>>);

/// The address is the API of a node of this cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is the API of a node of this cluster, which no webhook may reach")]
pub struct OwnApi(pub SocketAddr);

impl OwnAddresses {
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Whether a node serves its API on this port, on any address.
    #[must_use]
    pub fn has_port(&self, port: u16) -> bool {
        self.any(|own| own.port() == port)
    }

    pub fn check(&self, address: IpAddr, port: u16) -> Result<(), OwnApi> {
        match self.any(|own| own.port() == port && reaches(address.to_canonical(), own.ip().to_canonical())) {
            true => Err(OwnApi(SocketAddr::new(address, port))),
            false => Ok(()),
        }
    }

    /// Whether a node serves its API on this address, on any port.
    pub fn check_ip(&self, address: IpAddr) -> Result<(), OwnApi> {
        let own = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match own.iter().find(|own| reaches(address.to_canonical(), own.ip().to_canonical())) {
            Some(own) => Err(OwnApi(*own)),
            None => Ok(()),
        }
    }

    fn any(&self, is: impl Fn(&SocketAddr) -> bool) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(is)
    }
}

/// Whether a connection to `address` can arrive at a listener on `own`. Connecting to the unspecified address connects to
/// loopback. A listener on the unspecified address accepts on every local address; a node publishes those addresses in
/// addition.
fn reaches(address: IpAddr, own: IpAddr) -> bool {
    let local = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    address == own || (address.is_unspecified() && local(own)) || (own.is_unspecified() && local(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(addresses: &[&str]) -> OwnAddresses {
        let own = OwnAddresses::default();
        own.set(addresses.iter().map(|address| address.parse().unwrap()).collect());
        own
    }

    #[test]
    fn the_api_address_of_a_node_is_recognised_in_every_form() {
        let own = own(&["127.0.0.1:8640", "[::1]:9000", "0.0.0.0:7000", "10.0.0.5:7000"]);
        let is_own = |address: &str, port: u16| own.check(address.parse().unwrap(), port).is_err();
        for (address, port) in [
            ("127.0.0.1", 8640),
            ("::ffff:127.0.0.1", 8640),
            ("0.0.0.0", 8640),
            ("::", 9000),
            ("::1", 9000),
            ("127.0.0.1", 7000),
            ("127.0.0.9", 7000),
            ("10.0.0.5", 7000),
        ] {
            assert!(is_own(address, port), "{address} {port}");
        }
        for (address, port) in [("127.0.0.1", 8641), ("127.0.0.2", 8640), ("8.8.8.8", 8640), ("10.0.0.6", 7000)] {
            assert!(!is_own(address, port), "{address} {port}");
        }
        assert!(own.has_port(8640) && !own.has_port(80));
        assert!(OwnAddresses::default().check("127.0.0.1".parse().unwrap(), 8640).is_ok());
    }
}
