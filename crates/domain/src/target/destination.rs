//! Which host and port a node connects to. The engine limits the slots that one destination may use.

use std::net::Ipv4Addr;

use url::{Host, Url};

/// A fingerprint of a URL's host and port, as the HTTP client parses them. Spelling does not matter: `HOST`, `host.` and
/// `host:080` are one destination, and so are `127.1` and `127.0.0.1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Destination(u64);

impl Destination {
    pub(super) fn of(url: &str) -> Self {
        plain_host_and_port(url).map_or_else(|| Self::parsed(url), |(host, port)| Self::new(host, port))
    }

    /// A URL that cannot be parsed is never delivered, so its text is used as the host.
    fn parsed(text: &str) -> Self {
        let Ok(url) = Url::parse(text) else { return Self::new(text, 0) };
        let port = url.port_or_known_default().unwrap_or_default();
        match url.host() {
            Some(Host::Domain(name)) => Self::new(name.strip_suffix('.').unwrap_or(name), port),
            Some(Host::Ipv4(address)) => Self::new(&address.to_string(), port),
            Some(Host::Ipv6(address)) => Self::new(&address.to_canonical().to_string(), port),
            None => Self::new(text, 0),
        }
    }

    fn new(host: &str, port: u16) -> Self {
        use std::hash::Hasher as _;
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(host.as_bytes());
        hasher.write_u16(port);
        Self(hasher.finish())
    }
}

/// Host and port of a URL in plain form: a dotted IPv4 address, or a lower-case name whose last label starts with a letter.
/// Parsing would not change these. Full parsing costs several times as much, and every claim needs the destination.
fn plain_host_and_port(url: &str) -> Option<(&str, u16)> {
    let (rest, default) = match url.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (url.strip_prefix("http://")?, 80),
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, default),
    };
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let last_label = host.rsplit('.').next()?;
    let is_name = last_label.starts_with(|first: char| first.is_ascii_lowercase()) && host.bytes().all(is_plain);
    (is_name || host.parse::<Ipv4Addr>().is_ok()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_host_and_a_port() {
        let of = Destination::of;
        let same = of("https://example.org/a");
        for url in ["https://EXAMPLE.org", "HTTPS://user:pw@example.org:443/b?c#d", "https://example.org?x=http://a"] {
            assert_eq!(of(url), same, "{url}");
        }
        for url in ["http://example.org/", "https://example.org:444/", "https://www.example.org/", "https://[::1]/"] {
            assert_ne!(of(url), same, "{url}");
        }
        assert_eq!(of("http://[::1]/"), of("http://[::1]:80"));
    }

    #[test]
    fn a_destination_does_not_depend_on_how_the_url_is_written() {
        let of = Destination::of;
        for (url, other) in [
            ("http://example.org/", "http://example.org./"),
            ("http://example.org/", "http://example.org:080/"),
            ("http://example.org/", "http:/example.org/"),
            ("http://example.org/", "http:example.org"),
            ("http://example.org/", "http:\\\\example.org\\a"),
            ("http://example.org/", "http://ex%61mple.org/"),
            ("http://example.org/", "http://exa\tmple.org/"),
            ("http://example.org:8080/", "http://EXAMPLE.ORG:08080/"),
            ("http://127.0.0.1/", "http://127.1/"),
            ("http://127.0.0.1/", "http://0x7f.1/"),
            ("http://127.0.0.1/", "http://2130706433:80/"),
            ("http://127.0.0.1/", "http://[::ffff:127.0.0.1]/"),
            ("http://[::1]/", "http://[0:0:0:0:0:0:0:1]/"),
        ] {
            assert_eq!(of(url), of(other), "{url} {other}");
        }
        assert_ne!(of("http:/one.example/"), of("http:/other.example/"));
    }

    #[test]
    fn a_url_in_its_usual_form_has_the_destination_that_parsing_gives() {
        for url in [
            "https://a.example",
            "http://a.example:8080/b",
            "https://a-1.b2.example?c",
            "http://localhost:65535#d",
            "http://127.0.0.1:8080/",
            "https://255.255.255.255",
        ] {
            assert!(plain_host_and_port(url).is_some(), "{url}");
            assert_eq!(Destination::of(url), Destination::parsed(url), "{url}");
        }
        for url in [
            "http://a.example.",
            "http://1.2.3.04/",
            "http://1.2.3/",
            "http://1.2.3.4./",
            "http://a.0x7f/",
            "http://A.example",
            "http://u@a.example",
        ] {
            assert!(plain_host_and_port(url).is_none(), "{url}");
        }
    }
}
