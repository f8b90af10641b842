//! Checks a webhook's definition before anything is sent. Pure. Addresses are checked at delivery, not here: a name can resolve
//! to other addresses later, and the operator can change the allowed ranges.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use everytick_domain::{invalid::Invalid, secret::only_reference, target::HttpTarget};
use hyper::header::{HeaderName, HeaderValue};
use url::Url;

const URL_BYTES_MAX: usize = 2_048;
const HEADERS_MAX: usize = 50;
/// Size of all header names and values. Many servers refuse 16 KiB, and our headers are added.
const HEADERS_BYTES_MAX: usize = 8 * 1024;
/// The limits of Standard Webhooks for a symmetric secret.
const SECRET_BYTES_MIN: usize = 24;
const SECRET_BYTES_MAX: usize = 64;

/// Prefix of a secret, by Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
/// Headers that everytick or the HTTP client sets.
const HEADERS_RESERVED: [&str; 11] = [
    "idempotency-key",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
];
const HEADER_PREFIXES_RESERVED: [&str; 2] = ["webhook-", "everytick-"];

/// All errors, by field; empty when the definition can be delivered.
pub(super) fn validate(http: &HttpTarget) -> Vec<Invalid> {
    let url = read_url(http).err();
    url.into_iter().chain(validate_all_but_url(http)).collect()
}

pub(super) fn read_url(http: &HttpTarget) -> Result<Url, Invalid> {
    parse_url(&http.url).map_err(|message| Invalid::new("url", message))
}

/// The errors outside the URL. Separate, because a delivery parses the URL itself and parsing is expensive.
pub(super) fn validate_all_but_url(http: &HttpTarget) -> Vec<Invalid> {
    let mut found = Vec::new();
    check_headers(http, &mut found);
    // A reference is checked when its value is known.
    let literal = http.secret.as_deref().filter(|secret| only_reference(secret).is_none());
    if let Some(Err(message)) = literal.map(check_secret) {
        found.push(Invalid::new("secret", message));
    }
    if http.client_cert.as_deref().is_some_and(|cert| only_reference(cert).is_none()) {
        let message = "is not a reference; store the certificate and its key as a secret, and write {{ secrets.NAME }}";
        found.push(Invalid::new("client_cert", message));
    }
    found
}

/// Messages contain the URL only if it cannot include a password or a token.
fn parse_url(text: &str) -> Result<Url, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("has {} bytes; at most {URL_BYTES_MAX} are allowed", text.len()));
    }
    let url: Url = text.parse().map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase if is_plain(text) && !text.is_empty() && !text.starts_with('/') => {
            format!("{text:?} is not a URL: the scheme is missing; write \"https://{text}\"")
        }
        url::ParseError::InvalidPort => {
            let shown = if is_plain(text) { format!("{text:?} ") } else { String::new() };
            format!("{shown}has a port that is not a number from 1 to 65535; write one such as \"https://example.org:8443/hook\"")
        }
        _ if is_plain(text) => format!("{text:?} is not a URL; write one such as \"https://example.org/hook\""),
        _ => "is not a URL; write one such as \"https://example.org/hook\"".to_owned(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; only http and https are supported", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user name or password; send them in an authorization header instead".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("has no host; write one such as \"https://example.org/hook\"".to_owned());
    }
    Ok(url)
}

fn is_plain(url: &str) -> bool {
    !url.contains(['@', '?', '#'])
}

fn check_headers(http: &HttpTarget, found: &mut Vec<Invalid>) {
    if http.headers.len() > HEADERS_MAX {
        found.push(Invalid::new(
            "headers",
            format!("has {} headers; at most {HEADERS_MAX} are allowed", http.headers.len()),
        ));
        return;
    }
    let bytes: usize = http.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > HEADERS_BYTES_MAX {
        found.push(Invalid::new("headers", format!("has {bytes} bytes; at most {HEADERS_BYTES_MAX} are allowed")));
        return;
    }
    let mut seen = BTreeSet::new();
    for (name, value) in &http.headers {
        if let Err(message) = check_header(name, value) {
            found.push(Invalid::new(format!("headers.{name}"), message));
        } else if !seen.insert(name.to_ascii_lowercase()) {
            found.push(Invalid::new(format!("headers.{name}"), "occurs twice; header names are compared without case"));
        }
    }
}

/// Messages do not contain the value, which may be a secret.
fn check_header(name: &str, value: &str) -> Result<(), String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is not a header name; use letters, digits and dashes".to_owned())?;
    let name = name.as_str();
    if HEADERS_RESERVED.contains(&name) || HEADER_PREFIXES_RESERVED.iter().any(|prefix| name.starts_with(prefix)) {
        return Err("is set by everytick itself; choose another name".to_owned());
    }
    // UTF-8 could be sent, but few receivers decode it.
    if HeaderValue::from_str(value).is_ok_and(|value| value.to_str().is_ok()) {
        Ok(())
    } else {
        Err("has a value that is not one line of visible ASCII; remove other characters".to_owned())
    }
}

pub(super) fn check_secret(secret: &str) -> Result<(), String> {
    let expected = || {
        format!(
            "is not a Standard Webhooks secret; write \"{SECRET_PREFIX}\" and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} \
             random bytes in base64"
        )
    };
    let base64 = secret.strip_prefix(SECRET_PREFIX).ok_or_else(expected)?;
    let key = STANDARD.decode(base64).map_err(|_| expected())?;
    if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&key.len()) { Ok(()) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use everytick_domain::target::{HttpMethod, TargetSpec};

    use super::*;

    fn http() -> HttpTarget {
        let url = "https://example.org/hook".to_owned();
        HttpTarget { url, method: HttpMethod::Post, headers: [].into(), secret: None, client_cert: None }
    }
    fn url(url: &str) -> TargetSpec {
        TargetSpec::Http(HttpTarget { url: url.to_owned(), ..http() })
    }
    fn header(name: &str, value: &str) -> TargetSpec {
        TargetSpec::Http(HttpTarget { headers: [(name.to_owned(), value.to_owned())].into(), ..http() })
    }
    fn secret(bytes: usize) -> String {
        format!("whsec_{}", STANDARD.encode(vec![7; bytes]))
    }
    fn signed(secret: &str) -> TargetSpec {
        TargetSpec::Http(HttpTarget { secret: Some(secret.to_owned()), ..http() })
    }
    fn with_cert(cert: &str) -> TargetSpec {
        TargetSpec::Http(HttpTarget { client_cert: Some(cert.to_owned()), ..http() })
    }
    #[test]
    fn valid_definitions_have_no_errors() {
        for spec in [
            url("https://example.org/hook"),
            url("http://example.org:8080/hook?token=1"),
            url("http://127.0.0.1:9/"),
            url("http://[::1]/"),
            url("https://münchen.example/"),
            header("Authorization", "Bearer abc"),
            header("content-type", "text/plain"),
            header("user-agent", "mine"),
            signed(&secret(24)),
            signed(&secret(64)),
            signed("{{ secrets.key }}"),
            header("authorization", "Bearer {{ secrets.key }}"),
            url("https://example.org/hook?key={{ secrets.key }}"),
            with_cert("{{ secrets.cert }}"),
        ] {
            assert_eq!(crate::validate(&spec), [], "{spec:?}");
        }
    }

    #[test]
    fn each_error_names_its_field() {
        for (spec, field, message) in [
            (url(""), "target.http.url", "is not a URL"),
            (url("example.org/hook"), "target.http.url", "write \"https://example.org/hook\""),
            (url("example.org/?token=1"), "target.http.url", "is not a URL; write"),
            (url("https://"), "target.http.url", "is not a URL"),
            (url("ftp://example.org/"), "target.http.url", "only http and https"),
            (url("file:///etc/passwd"), "target.http.url", "only http and https"),
            (url("https://user:hunter2@example.org/"), "target.http.url", "user name or password"),
            (url("https://user@example.org/"), "target.http.url", "user name or password"),
            (url(&format!("https://example.org/{}", "x".repeat(URL_BYTES_MAX))), "target.http.url", "at most 2048"),
            (header("", "x"), "target.http.headers.", "not a header name"),
            (header("a b", "x"), "target.http.headers.a b", "not a header name"),
            (header("a", "x\r\nhost: y"), "target.http.headers.a", "visible ASCII"),
            (header("a", "é"), "target.http.headers.a", "visible ASCII"),
            (header("Webhook-Id", "x"), "target.http.headers.Webhook-Id", "set by everytick"),
            (header("everytick-anything", "x"), "target.http.headers.everytick-anything", "set by everytick"),
            (header("idempotency-key", "x"), "target.http.headers.idempotency-key", "set by everytick"),
            (header("Host", "x"), "target.http.headers.Host", "set by everytick"),
            (header("Content-Length", "1"), "target.http.headers.Content-Length", "set by everytick"),
            (header("transfer-encoding", "x"), "target.http.headers.transfer-encoding", "set by everytick"),
            (header("connection", "x"), "target.http.headers.connection", "set by everytick"),
            (header("a", &"x".repeat(HEADERS_BYTES_MAX)), "target.http.headers", "at most 8192"),
            (signed("hunter2"), "target.http.secret", "not a Standard Webhooks secret"),
            (signed("whsec_hunter2!"), "target.http.secret", "not a Standard Webhooks secret"),
            (signed(&secret(23)), "target.http.secret", "24 to 64"),
            (signed(&secret(65)), "target.http.secret", "24 to 64"),
            (with_cert("hunter2"), "target.http.client_cert", "not a reference"),
        ] {
            let found = crate::validate(&spec);
            assert_eq!(found.len(), 1, "{spec:?}: {found:?}");
            assert_eq!(found[0].field, field);
            assert!(found[0].message.contains(message), "{}", found[0]);
            assert!(!found[0].message.contains("hunter2"), "{}", found[0]);
        }
    }

    #[test]
    fn counts_are_limited_and_all_errors_are_reported_together() {
        let many = |count: usize| (0..count).map(|n| (format!("n{n}"), String::new())).collect();
        let headers = TargetSpec::Http(HttpTarget { headers: many(HEADERS_MAX + 1), ..http() });
        assert_eq!(
            crate::validate(&headers)[0].to_string(),
            "target.http.headers: has 51 headers; at most 50 are allowed"
        );

        let headers = [("X-A".to_owned(), String::new()), ("x-a".to_owned(), String::new())].into();
        let http = HttpTarget { url: "no".to_owned(), secret: Some("no".to_owned()), headers, ..http() };
        let fields: Vec<String> =
            crate::validate(&TargetSpec::Http(http)).into_iter().map(|found| found.field).collect();
        assert_eq!(fields, ["target.http.url", "target.http.headers.x-a", "target.http.secret"]);
    }
}
