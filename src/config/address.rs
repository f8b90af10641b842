//! Addresses in settings. Each is a flag, a variable and a key of `everytick.toml`, with one message for all of them.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use ipnet::IpNet;
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};

const DNS_PORT: u16 = 53;
/// `sun_path` of the BSDs and macOS has 104 bytes, that of Linux 108. One of them is the 0 at the end.
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// Where the API listens: an IP address and a port (`localhost` means 127.0.0.1), or a Unix socket.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Default for Listen {
    fn default() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 8640)))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let bytes = path.len();
            let path = PathBuf::from(path);
            return if path.file_name().is_none() {
                Err(format!("{text:?} names no socket; write it like \"unix:/run/everytick/api.sock\""))
            } else if bytes > SOCKET_PATH_BYTES_MAX {
                Err(format!(
                    "the path of the socket has {bytes} bytes, and the operating system allows {SOCKET_PATH_BYTES_MAX}; write a \
                     shorter one, such as \"unix:/run/everytick/api.sock\""
                ))
            } else {
                Ok(Self::Unix(path))
            };
        }
        let wrong = |_| {
            format!(
                "{text:?} is not an address to listen on; write it like \"127.0.0.1:8640\", \"[::1]:8640\" or \
                 \"unix:/run/everytick/api.sock\""
            )
        };
        match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}").parse().map(Self::Tcp).map_err(wrong),
            None => text.parse().map(Self::Tcp).map_err(wrong),
        }
    }
}

/// The key `listen` of `everytick.toml`: one address, or a list.
#[derive(Debug)]
pub(crate) struct ListenKey(pub(crate) Vec<Listen>);

impl<'de> Deserialize<'de> for ListenKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = ListenKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or a list of addresses")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ListenKey, E> {
                text.parse().map(|one| ListenKey(vec![one])).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ListenKey, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(ListenKey(all))
            }
        }
        deserializer.deserialize_any(OneOrMany)
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
    fn an_address_to_listen_on_is_tcp_or_a_unix_socket_and_is_shown_as_written() {
        for text in ["127.0.0.1:8640", "[::1]:1", "unix:/run/everytick/api.sock", "unix:api.sock"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:1".parse::<Listen>().unwrap().to_string(), "127.0.0.1:1");
        for text in ["", "unix:", "unix:/", "unix:..", "8640", "host:1"] {
            let message = text.parse::<Listen>().unwrap_err();
            assert!(message.contains(&format!("{text:?}")) && message.contains("api.sock"), "{message}");
        }
    }

    #[test]
    fn the_path_of_a_socket_is_limited() {
        let path = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1)).parse::<Listen>();
        assert!(path(SOCKET_PATH_BYTES_MAX).is_ok());
        let message = path(SOCKET_PATH_BYTES_MAX + 1).unwrap_err();
        assert!(message.contains("104 bytes") && message.contains("a shorter one"), "{message}");
    }

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
