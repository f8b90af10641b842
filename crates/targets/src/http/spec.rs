//! A webhook in the API, and its texts in CLI and documents.

use std::collections::BTreeMap;

use everytick_domain::{
    invalid::Invalid,
    target::{HttpMethod, HttpTarget, TargetKind},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;

use crate::{
    kind::{Flag, FlagValue, KindInfo, WireForm},
    mask::{MASK, NOT_STORED, masked, shown, unmask_all},
};

pub(super) const INFO: KindInfo = KindInfo {
    kind: TargetKind::Http,
    example: r#"{"url": "https://example.org/hook"}"#,
    reference: "`url`, `method` (`POST`; also `GET`, `PUT`, `PATCH`, `DELETE`), `headers`, `secret` (`whsec_...`), `client_cert`; see \
                [Receive webhooks](../how-to/webhooks.md)",
    flags: &[
        Flag::new("url", "URL", &["url"], "Deliver runs to this webhook").choosing(),
        Flag::new(
            "method",
            "METHOD",
            &["method"],
            "Call the webhook with this method: GET, POST, PUT, PATCH or DELETE [default: POST]",
        )
        .of(FlagValue::UpperCase),
        Flag::new("header", "NAME: VALUE", &["headers"], "Send this header with the webhook; repeatable")
            .of(FlagValue::Header),
        Flag::new(
            "secret",
            "SECRET",
            &["secret"],
            "Sign deliveries with this Standard Webhooks secret (whsec_...), or with the secret in @file",
        )
        .of(FlagValue::Secret),
        Flag::new(
            "client-cert-secret",
            "REFERENCE",
            &["client_cert"],
            "Show the receiver the client certificate in this secret, as {{ secrets.NAME }}",
        ),
        Flag::new("remove-header", "NAME", &["headers"], "Remove this header; repeatable").of(FlagValue::Remove),
    ],
    summary,
    details,
};

fn summary(shown: &Value) -> Option<String> {
    Some(format!("{} {}", shown["method"].as_str().unwrap_or("POST"), shown["url"].as_str()?))
}

fn details(shown: &Value) -> Vec<(&'static str, String)> {
    let headers = shown["headers"].as_object().into_iter().flatten();
    let headers = headers.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap_or_default()));
    let signed = if shown["secret"].is_string() { "by a secret" } else { "" };
    vec![("Headers", headers.collect::<Vec<_>>().join("\n")), ("Signed", signed.to_owned())]
}

/// A webhook. With a secret, requests are signed by Standard Webhooks. The run's id is the idempotency key.
#[derive(Clone, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Http, example = json!({"url": "https://example.org/hook"}))]
pub struct Wire {
    #[schema(format = "uri", example = "https://example.org/hook", max_length = 2048)]
    url: String,
    /// Default `POST`.
    #[serde(default = "Wire::method_default")]
    method: Method,
    /// Sent with every delivery. Answers show `********` for values of headers that carry credentials.
    #[serde(default)]
    #[schema(example = json!({"x-team": "billing"}))]
    headers: BTreeMap<String, String>,
    /// `whsec_` and 24 to 64 random bytes in base64, or a reference `{{ secrets.NAME }}` to a secret with such a value. Answers
    /// show a reference, and `********` for a value.
    #[serde(default)]
    secret: Option<String>,
    /// A reference to a secret, `{{ secrets.NAME }}`, with the client certificate, its chain and its key in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "{{ secrets.client-cert }}")]
    client_cert: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl From<Method> for HttpMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::Get,
            Method::Post => Self::Post,
            Method::Put => Self::Put,
            Method::Patch => Self::Patch,
            Method::Delete => Self::Delete,
        }
    }
}

impl From<HttpMethod> for Method {
    fn from(method: HttpMethod) -> Self {
        match method {
            HttpMethod::Get => Self::Get,
            HttpMethod::Post => Self::Post,
            HttpMethod::Put => Self::Put,
            HttpMethod::Patch => Self::Patch,
            HttpMethod::Delete => Self::Delete,
        }
    }
}

/// Prints no values: they may be credentials, and the text may end up in a log.
impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Wire {
    const fn method_default() -> Method {
        Method::Post
    }
}

impl WireForm for Wire {
    type Spec = HttpTarget;

    fn read(self, old: Option<&HttpTarget>, errors: &mut Vec<Invalid>) -> Option<HttpTarget> {
        // A credential belongs to one receiver. A client that wants to send it elsewhere must know it.
        let old = old.filter(|old| same_origin(&old.url, &self.url) && Method::from(old.method) == self.method);
        let headers = unmask_all("headers", self.headers, old.map(|old| &old.headers), NOT_STORED, errors);
        let secret = match self.secret {
            Some(secret) if secret == MASK => {
                let stored = old.and_then(|old| old.secret.clone());
                if stored.is_none() {
                    errors.push(Invalid::new("secret", NOT_STORED));
                }
                stored
            }
            given => given,
        };
        let (url, method, client_cert) = (self.url, self.method.into(), self.client_cert);
        Some(HttpTarget { url, method, headers: headers?, secret, client_cert })
    }

    fn show(spec: &HttpTarget) -> Self {
        Self {
            url: spec.url.clone(),
            method: spec.method.into(),
            headers: masked(&spec.headers),
            secret: spec.secret.as_deref().map(shown),
            client_cert: spec.client_cert.as_deref().map(shown),
        }
    }
}

/// Compares scheme, host and port, parsed in the same way as the HTTP client parses them.
fn same_origin(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin().is_tuple() && one.origin() == other.origin(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_after_parsing_not_as_text() {
        for same in ["https://example.org/other?q#f", "HTTPS://EXAMPLE.org:443", "https://user@example.org/"] {
            assert!(same_origin("https://example.org/hook", same), "{same}");
        }
        for other in [
            "http://example.org/hook",
            "https://example.org:8443/hook",
            "https://example.org.evil.example/hook",
            "https://example.org@evil.example/hook",
            "https://example.org\\@evil.example/hook",
            "https:/\t/evil.example/hook",
            "example.org/hook",
            "",
        ] {
            assert!(!same_origin("https://example.org@good.example/hook", other), "{other}");
        }
        assert!(!same_origin("data:x", "data:x"), "opaque origins are never equal");
    }
}
