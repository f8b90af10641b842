//! Pages for browsers, drawn on the server. They need no script.

pub(crate) mod login;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::docs::escape;

pub(crate) const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                              form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
pub(crate) const STYLE: &str = include_str!("style.css");

/// A page of this server. `body` is HTML.
fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{} - Everytick</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"stylesheet\" href=\"/auth/style.css\"></head>\
         <body><main>{body}</main></body></html>",
        escape(title)
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CSP),
        // With `no-referrer`, browsers send `Origin: null` with a form, and the server would refuse it.
        (header::REFERRER_POLICY, "same-origin"),
    ];
    (status, headers, html).into_response()
}

/// Leads a browser to a path of this server after a form was sent.
pub(crate) fn see_other(path: &str, cookie: Option<HeaderValue>) -> Response {
    let mut headers = HeaderMap::new();
    headers.extend(HeaderValue::from_str(path).ok().map(|path| (header::LOCATION, path)));
    headers.extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    let link = format!("<!doctype html><title>Everytick</title><a href=\"{}\">Continue</a>", escape(path));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    (StatusCode::SEE_OTHER, headers, link).into_response()
}
