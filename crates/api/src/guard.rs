//! Decides which callers are allowed while there are no tokens: programs on this machine, and pages of this server.
//! A page of another site is detected by its `Origin` and by `Sec-Fetch-Site`. A foreign name that points here (DNS rebinding)
//! is detected by its `Host`.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    Api,
    error::{ApiError, Result},
};

/// Refuses a request whose `Host` or `Origin` is not this server's, or that a page of another site sends.
pub(crate) async fn check(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let named = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let checked = allowed(request.headers(), named.as_deref(), api.listen.port())
        .and_then(|()| not_cross_site(request.method(), request.uri().path(), request.headers()));
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn allowed(headers: &HeaderMap, authority: Option<&str>, port: u16) -> Result<()> {
    // Every webhook carries this header and no API client does: a job must not call the API of its own cluster.
    if headers.contains_key("everytick-run") {
        return Err(ApiError::Forbidden(
            "the request carries the header everytick-run: webhooks may not call the API; remove the header".to_owned(),
        ));
    }
    let host = single(headers, &header::HOST)?.or(authority);
    let host = host.ok_or_else(|| ApiError::Forbidden("the request has no Host header".to_owned()))?;
    for name in [Some(host), authority].into_iter().flatten() {
        if !is_ours(name, port) {
            return Err(ApiError::Forbidden(format!(
                "the Host {name:?} is not this server's; use localhost or a loopback address, port {port}"
            )));
        }
    }
    match single(headers, &header::ORIGIN)? {
        Some(origin) if !is_own_origin(origin, host) => Err(ApiError::Forbidden(format!(
            "the Origin {origin:?} is not this server's; other sites may not send requests here"
        ))),
        _ => Ok(()),
    }
}

/// Pages that another site may link to.
const PAGES: [&str; 3] = ["/", "/docs", "/openapi.json"];

/// Refuses requests that a browser sends for a page of another site. `Origin` is not enough: a browser sends none for an image or
/// a script. Allowed are links to a page, and `/healthz`, which reveals nothing.
fn not_cross_site(method: &Method, path: &str, headers: &HeaderMap) -> Result<()> {
    let site = single(headers, &SEC_FETCH_SITE)?;
    if !matches!(site, Some("cross-site" | "same-site")) {
        return Ok(());
    }
    let whole_page = single(headers, &SEC_FETCH_MODE)? == Some("navigate")
        && single(headers, &SEC_FETCH_DEST)?.is_none_or(|shown_as| shown_as == "document");
    if method == Method::GET && (path == "/healthz" || whole_page && PAGES.contains(&path)) {
        return Ok(());
    }
    Err(ApiError::CrossSite)
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(ApiError::Forbidden(format!("the header {name} is not one line of ASCII"))),
    }
}

/// Whether the host is a loopback name or address, with this server's port or without a port.
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

/// Adds security headers to every answer: no sniffing, no framing, no caching, no content from elsewhere.
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
    fn only_loopback_hosts_with_the_own_port_or_without_a_port_are_accepted() {
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
    fn requests_of_other_sites_are_refused_except_links_to_pages_and_healthz() {
        let is_allowed = |method: &str, path: &str, fetch: &[(&'static str, &'static str)]| {
            let pairs =
                fetch.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            not_cross_site(&method.parse().unwrap(), path, &pairs.collect()).is_ok()
        };
        let (cross, same) = (("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"));
        let (link, page, frame) =
            (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("sec-fetch-dest", "iframe"));
        for (method, path, fetch) in [
            ("GET", "/api/v1/jobs", &[][..]),
            ("POST", "/api/v1/jobs", &[("sec-fetch-site", "same-origin")]),
            ("GET", "/api/v1/jobs", &[("sec-fetch-site", "none"), link]),
            ("GET", "/healthz", &[cross]),
            ("GET", "/docs", &[cross, link, page]),
            ("GET", "/docs", &[same, link]),
            ("GET", "/openapi.json", &[cross, link, page]),
        ] {
            assert!(is_allowed(method, path, fetch), "{method} {path} {fetch:?}");
        }
        for (method, path, fetch) in [
            ("GET", "/api/v1/jobs", &[cross][..]),
            ("GET", "/api/v1/jobs", &[cross, link, page]),
            ("GET", "/metrics", &[cross, link, page]),
            ("GET", "/readyz", &[same]),
            ("POST", "/api/v1/jobs/j/trigger", &[same, link, page]),
            ("POST", "/healthz", &[cross]),
            ("POST", "/docs", &[cross, link, page]),
            ("GET", "/docs", &[cross, link, frame]),
            ("GET", "/docs", &[cross]),
            ("GET", "/docs/style.css", &[cross]),
        ] {
            assert!(!is_allowed(method, path, fetch), "{method} {path} {fetch:?}");
        }
    }

    #[test]
    fn only_the_exact_origin_of_this_server_is_accepted() {
        assert!(is_own_origin("http://localhost:8640", "localhost:8640"));
        for origin in
            ["null", "", "https://localhost:8640", "http://localhost", "http://localhost:3000", "http://evil.example"]
        {
            assert!(!is_own_origin(origin, "localhost:8640"), "{origin}");
        }
    }
}
