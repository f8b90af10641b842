//! Checks that a change in a session comes from a page of this server. A browser sends the cookie with each request,
//! whichever page causes it, so the cookie alone does not show that the user wants the change.
//!
//! `guard` has checked before that `Origin`, if there is one, is that of this server.

use axum::http::{HeaderMap, HeaderName, Method, header};
use everytick_domain::access::SessionSecret;

use super::Caller;
use crate::error::{ApiError, Result};

/// The header, and the field of a form, that carries the CSRF token.
pub(crate) const NAME: &str = "everytick-csrf";
const HEADER: HeaderName = HeaderName::from_static(NAME);
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks a request of an authenticated caller. Only changes in a session need a CSRF token.
pub(super) fn check(caller: &Caller, method: &Method, headers: &HeaderMap) -> Result<()> {
    match &caller.session {
        Some(session) if !matches!(*method, Method::GET | Method::HEAD) => {
            let token = headers.get(&HEADER).and_then(|value| value.to_str().ok());
            check_change(&session.secret, token, headers)
        }
        _ => Ok(()),
    }
}

/// Checks a change in the session with this secret.
pub(super) fn check_change(secret: &SessionSecret, token: Option<&str>, headers: &HeaderMap) -> Result<()> {
    from_own_page(headers)?;
    match token {
        Some(token) if secret.has_csrf(token) => Ok(()),
        Some(_) => Err(ApiError::Forbidden(format!("{NAME} is not the token of this session; GET /api/v1/me has it"))),
        None => Err(ApiError::Forbidden(format!(
            "a change in a session needs the header {NAME}; GET /api/v1/me has its value"
        ))),
    }
}

/// Checks that a browser sends the request for a page of this server.
pub(super) fn from_own_page(headers: &HeaderMap) -> Result<()> {
    if headers.get(&SEC_FETCH_SITE).is_some_and(|site| site != "same-origin") {
        return Err(ApiError::CrossSite);
    }
    if headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    Err(ApiError::Forbidden("the request has no header Origin; a browser sends it with each change".to_owned()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_change_needs_the_origin_the_site_and_the_token() {
        let secret = SessionSecret::from_random([1; 32]);
        let (right, wrong) = (secret.csrf(), SessionSecret::from_random([2; 32]).csrf());
        let of = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            pairs.iter().map(pair).collect()
        };
        let origin = ("origin", "http://127.0.0.1:8640");
        for (headers, token, expected) in [
            (of(&[origin]), Some(&right), true),
            (of(&[origin, ("sec-fetch-site", "same-origin")]), Some(&right), true),
            (of(&[]), Some(&right), false),
            (of(&[origin]), Some(&wrong), false),
            (of(&[origin]), None, false),
            (of(&[origin, ("sec-fetch-site", "same-site")]), Some(&right), false),
            (of(&[origin, ("sec-fetch-site", "cross-site")]), Some(&right), false),
            (of(&[origin, ("sec-fetch-site", "none")]), Some(&right), false),
        ] {
            let checked = check_change(&secret, token.map(String::as_str), &headers);
            assert_eq!(checked.is_ok(), expected, "{headers:?} {token:?}");
        }
    }
}
