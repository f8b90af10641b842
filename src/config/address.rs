//! Addresses in settings. Each is a flag, a variable and a key of `everytick.toml`, with one message for all of them.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::Deserialize;

const DNS_PORT: u16 = 53;

/// An IP address and a port. `localhost` means 127.0.0.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Listen(SocketAddr);

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::from(([127, 0, 0, 1], 8640)))
    }
}

impl Listen {
    pub(crate) const fn address(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |_| format!("{text:?} is not an address to listen on; write it like \"127.0.0.1:8640\" or \"[::1]:8640\"");
        match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}").parse().map(Self).map_err(wrong),
            None => text.parse().map(Self).map_err(wrong),
        }
    }
}

/// A range of IP addresses. A single address is a range of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct AddressRange(pub(crate) IpNet);

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = text.parse::<IpAddr>().map(IpNet::from);
        text.parse().or(one).map(Self).map_err(|_| {
            format!("{text:?} is not a range of addresses; write it like \"10.0.0.0/8\", \"127.0.0.1\" or \"fd00::/8\"")
        })
    }
}

/// The address of a DNS server. The default port is 53.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct DnsServer(pub(crate) SocketAddr);

impl FromStr for DnsServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let without_port = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
        text.parse().or(without_port).map(Self).map_err(|_| {
            format!("{text:?} is not the address of a DNS server; write it like \"10.0.0.53\" or \"10.0.0.53:53\"")
        })
    }
}

macro_rules! read_from_text {
    ($($kind:ident)*) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}
read_from_text! { Listen AddressRange DnsServer }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_address_is_a_range_and_a_dns_server_has_the_default_port() {
        let range = |text: &str| text.parse::<AddressRange>().map(|range| range.0.to_string());
        assert_eq!(range("10.0.0.0/8"), Ok("10.0.0.0/8".to_owned()));
        assert_eq!(range("127.0.0.1"), Ok("127.0.0.1/32".to_owned()));
        assert_eq!(range("::1"), Ok("::1/128".to_owned()));
        let dns = |text: &str| text.parse::<DnsServer>().map(|server| server.0.to_string());
        assert_eq!(
            (dns("10.0.0.53"), dns("10.0.0.53:54")),
            (Ok("10.0.0.53:53".to_owned()), Ok("10.0.0.53:54".to_owned()))
        );
        assert_eq!(dns("::1"), Ok("[::1]:53".to_owned()));
        for text in ["", "10.0.0.0/99", "host", "10.0.0.0-10.0.0.9"] {
            assert!(range(text).unwrap_err().contains(&format!("{text:?}")), "{text}");
            assert!(dns(text).unwrap_err().contains(&format!("{text:?}")), "{text}");
        }
    }
}
