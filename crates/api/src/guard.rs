//! Who may ask while there are no tokens: programs on this machine, and pages that this server gave out. A page of another
//! site is known by its Origin; one that made a name of its own point here (DNS rebinding) by its Host.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    Api,
    error::{ApiError, Result},
};

/// Answers a request only if it comes from this machine and for it.
pub(crate) async fn check(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let named = request.uri().authority().map(|authority| authority.as_str().to_owned());
    match allowed(request.headers(), named.as_deref(), api.listen.port()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn allowed(headers: &HeaderMap, authority: Option<&str>, port: u16) -> Result<()> {
    let host = single(headers, &header::HOST)?.or(authority);
    let host = host.ok_or_else(|| ApiError::Forbidden("the request names no Host".to_owned()))?;
    for name in [Some(host), authority].into_iter().flatten() {
        if !is_ours(name, port) {
            return Err(ApiError::Forbidden(format!(
                "the Host {name:?} is not this server's; ask localhost or a loopback address, port {port}"
            )));
        }
    }
    match single(headers, &header::ORIGIN)? {
        Some(origin) if !is_own_origin(origin, host) => {
            Err(ApiError::Forbidden(format!("the Origin {origin:?} is not this server's; other sites may not ask")))
        }
        _ => Ok(()),
    }
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(ApiError::Forbidden(format!("the header {name} is not one line of ASCII"))),
    }
}

/// A loopback name or address, with our port or none.
fn is_ours(host: &str, port: u16) -> bool {
    let (name, given) = match host.rfind(':') {
        Some(at) if !host.ends_with(']') => (&host[..at], Some(&host[at + 1..])),
        _ => (host, None),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let loopback = match address {
        Some(address) => address.parse().is_ok_and(|address: IpAddr| address.is_ipv6() && address.is_loopback()),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|address: IpAddr| address.is_ipv4() && address.is_loopback())
        }
    };
    loopback && given.is_none_or(|given| given == port.to_string())
}

fn is_own_origin(origin: &str, host: &str) -> bool {
    origin.strip_prefix("http://").is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Headers that every answer carries: nothing is sniffed, framed, cached or loaded from elsewhere.
pub(crate) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_with_our_port_or_none_are_ours() {
        for host in ["localhost", "LOCALHOST:8640", "127.0.0.1", "127.0.0.1:8640", "127.9.9.9", "[::1]", "[::1]:8640"] {
            assert!(is_ours(host, 8640), "{host}");
        }
        for host in [
            "",
            ":8640",
            "localhost:",
            "localhost:80",
            "localhost.",
            "evil.example",
            "localhost.evil.example:8640",
            "10.0.0.1:8640",
            "::1",
            "[::1",
            "[127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "127.0.0.1:08640",
            "0.0.0.0",
            "user@localhost",
            "127.1",
        ] {
            assert!(!is_ours(host, 8640), "{host}");
        }
    }

    #[test]
    fn an_origin_is_our_own_or_foreign() {
        assert!(is_own_origin("http://localhost:8640", "localhost:8640"));
        for origin in
            ["null", "", "https://localhost:8640", "http://localhost", "http://localhost:3000", "http://evil.example"]
        {
            assert!(!is_own_origin(origin, "localhost:8640"), "{origin}");
        }
    }
}
