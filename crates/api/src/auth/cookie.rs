//! The cookie of a session. Over https its name begins with `__Host-`: the browser then accepts it only from this host,
//! over https, and no other host of the domain can set it. Over plain http, which the server allows on loopback, that name
//! is not possible.

use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use everytick_domain::access::{SESSION_LIFETIME, SessionSecret};

use crate::{Hosts, server::Carrier};

const SECURE_NAME: &str = "__Host-everytick";
const PLAIN_NAME: &str = "everytick";

/// The session cookie of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cookie {
    None,
    Session(SessionSecret),
    /// Not a secret of this server, or several different ones.
    Wrong,
}

impl Cookie {
    /// Reads the cookie. Over https, a cookie without the prefix is ignored: another host could have set it.
    pub(crate) fn read(headers: &HeaderMap, secure: bool) -> Self {
        let secure_one = Self::named(headers, SECURE_NAME);
        if secure_one == Self::None && !secure { Self::named(headers, PLAIN_NAME) } else { secure_one }
    }

    fn named(headers: &HeaderMap, name: &str) -> Self {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(found, _)| *found == name).map(|(_, value)| value);
        let Some(first) = values.next() else { return Self::None };
        match SessionSecret::parse(first) {
            Some(secret) if values.all(|other| other == first) => Self::Session(secret),
            _ => Self::Wrong,
        }
    }

    pub(crate) fn secret(&self) -> Option<&SessionSecret> {
        match self {
            Self::Session(secret) => Some(secret),
            Self::None | Self::Wrong => None,
        }
    }
}

/// Whether the browser reaches this server over https, directly or through a proxy.
pub(crate) fn is_secure(headers: &HeaderMap, extensions: &Extensions, hosts: &Hosts) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    extensions.get::<Carrier>().is_some_and(Carrier::is_tls)
        || text(header::ORIGIN).is_some_and(|origin| origin.starts_with("https://"))
        || text(header::HOST).is_some_and(|host| hosts.is_https(host))
}

/// The header `Set-Cookie` that begins a session.
pub(crate) fn begin(secret: &SessionSecret, secure: bool) -> Option<HeaderValue> {
    let seconds = SESSION_LIFETIME.as_millis() / 1_000;
    set(&format!("{}; Max-Age={seconds}", secret.expose()), secure)
}

/// The header `Set-Cookie` that removes the cookie.
pub(crate) fn end(secure: bool) -> Option<HeaderValue> {
    set("; Max-Age=0", secure)
}

fn set(value: &str, secure: bool) -> Option<HeaderValue> {
    let (name, flag) = if secure { (SECURE_NAME, "; Secure") } else { (PLAIN_NAME, "") };
    HeaderValue::from_str(&format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{flag}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookies: &[String]) -> HeaderMap {
        cookies.iter().map(|text| (header::COOKIE, HeaderValue::from_str(text).unwrap())).collect()
    }

    #[test]
    fn over_https_only_the_cookie_with_the_prefix_is_read() {
        let (one, two) = (SessionSecret::from_random([1; 32]), SessionSecret::from_random([2; 32]));
        let (plain, secure) = (format!("everytick={}", one.expose()), format!("__Host-everytick={}", two.expose()));
        for (cookies, over_http, over_https) in [
            (vec![], Cookie::None, Cookie::None),
            (vec!["other=1; a=b".to_owned()], Cookie::None, Cookie::None),
            (vec![plain.clone()], Cookie::Session(one.clone()), Cookie::None),
            (vec![format!("a=b; {plain}; c=d")], Cookie::Session(one.clone()), Cookie::None),
            // Behind a proxy that replaces Host, the server cannot see that the browser uses https.
            (vec![secure.clone()], Cookie::Session(two.clone()), Cookie::Session(two.clone())),
            (vec![format!("{plain}; {secure}")], Cookie::Session(two.clone()), Cookie::Session(two.clone())),
            (vec![plain.clone(), plain.clone()], Cookie::Session(one.clone()), Cookie::None),
            (vec![plain.clone(), format!("everytick={}", two.expose())], Cookie::Wrong, Cookie::None),
            (vec!["everytick=x".to_owned()], Cookie::Wrong, Cookie::None),
            (vec!["__Host-everytick=".to_owned(), plain], Cookie::Wrong, Cookie::Wrong),
        ] {
            let given = headers(&cookies);
            assert_eq!(
                (Cookie::read(&given, false), Cookie::read(&given, true)),
                (over_http, over_https),
                "{cookies:?}"
            );
        }
    }

    #[test]
    fn a_browser_uses_https_by_tls_or_by_the_public_url() {
        let hosts = Hosts { ports: vec![8640], public: "https://jobs.example.org".parse().ok(), allowed: Vec::new() };
        let given = |host: &'static str, origin: Option<&'static str>| {
            let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            is_secure(&headers, &Extensions::new(), &hosts)
        };
        assert!(given("jobs.example.org", None));
        assert!(given("127.0.0.1:8640", Some("https://jobs.example.org")), "the proxy replaced Host");
        assert!(!given("127.0.0.1:8640", None) && !given("127.0.0.1:8640", Some("http://127.0.0.1:8640")));
    }
}
