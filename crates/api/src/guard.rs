//! Refuses requests that a browser sends for a page of another site, before the caller is authenticated.
//! A page of another site is detected by its `Origin` and by `Sec-Fetch-Site`. A foreign name that points here (DNS rebinding)
//! is detected by its `Host`.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    Api, Hosts,
    error::{ApiError, Result},
    server::Carrier,
};

/// Refuses a request whose `Host` or `Origin` is not this server's, or that a page of another site sends.
pub(crate) async fn check(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let named = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let tls = request.extensions().get::<Carrier>().is_some_and(Carrier::is_tls);
    let checked = allowed(request.headers(), named.as_deref(), &api.hosts, tls)
        .and_then(|()| not_cross_site(request.method(), request.uri().path(), request.headers()));
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn allowed(headers: &HeaderMap, authority: Option<&str>, hosts: &Hosts, tls: bool) -> Result<()> {
    // Every webhook carries this header and no API client does: a job must not call the API of its own cluster.
    if headers.contains_key("everytick-run") {
        return Err(ApiError::Forbidden(
            "the request carries the header everytick-run: webhooks may not call the API; remove the header".to_owned(),
        ));
    }
    let host = single(headers, &header::HOST)?.or(authority);
    let host = host.ok_or_else(|| ApiError::Forbidden("the request has no Host header".to_owned()))?;
    for name in [Some(host), authority].into_iter().flatten() {
        if !hosts.has(name) {
            return Err(ApiError::Forbidden(not_ours(name, hosts)));
        }
    }
    match single(headers, &header::ORIGIN)? {
        Some(origin) if !hosts.has_origin(origin, host, tls) => Err(ApiError::Forbidden(format!(
            "the Origin {origin:?} is not this server's; other sites may not send requests here"
        ))),
        _ => Ok(()),
    }
}

fn not_ours(name: &str, hosts: &Hosts) -> String {
    let ports: Vec<String> = hosts.ports.iter().map(ToString::to_string).collect();
    let here = match ports.as_slice() {
        [] => "localhost".to_owned(),
        ports => format!("localhost or a loopback address, port {}", ports.join(" or ")),
    };
    let public = hosts.public.as_ref().map(|public| format!("{}, or ", public.as_str())).unwrap_or_default();
    format!("the Host {name:?} is not this server's; use {public}{here}, or start the server with --allow-host NAME")
}

/// Pages that another site may link to.
const PAGES: [&str; 4] = ["/", "/docs", "/openapi.json", "/auth/login"];

/// Refuses requests that a browser sends for a page of another site. `Origin` is not enough: a browser sends none for an image or
/// a script. Allows links to a page, and `/healthz`, which reveals nothing.
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

/// Adds security headers to every answer: no sniffing, no framing, no caching, no content from other sites.
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
}
