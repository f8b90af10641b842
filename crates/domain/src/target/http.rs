//! `http`: a node calls a webhook.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{Destination, TargetRules};
use crate::{
    secret::{Host, Place, Text},
    time::Span,
};

/// Upper limit of an HTTP job's `timeout`: a request occupies a slot and a connection for as long as it lasts.
pub const HTTP_TIMEOUT_MAX: Span = Span::hours(1);

/// A webhook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpTarget {
    pub url: String,
    pub method: HttpMethod,
    pub headers: BTreeMap<String, String>,
    /// The Standard Webhooks secret (`whsec_...`); `None`: requests are not signed.
    pub secret: Option<String>,
    /// A reference to the secret with the client certificate and its key in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<String>,
}

impl HttpTarget {
    /// A POST to `url`, without headers and unsigned.
    #[must_use]
    pub const fn post(url: String) -> Self {
        Self { url, method: HttpMethod::Post, headers: BTreeMap::new(), secret: None, client_cert: None }
    }
}

impl TargetRules for HttpTarget {
    fn timeout_default(&self) -> Span {
        Span::seconds(30)
    }

    fn timeout_max(&self) -> Option<Span> {
        Some(HTTP_TIMEOUT_MAX)
    }

    fn destination(&self) -> Option<Destination> {
        Some(Destination::of(&self.url))
    }

    fn host(&self) -> Option<Host> {
        Host::of_url(&self.url)
    }

    fn texts<'a>(&'a self, each: &mut dyn FnMut(Text<'a>)) {
        each(Text { field: "url", entry: None, text: &self.url, place: Place::Query });
        for (name, text) in &self.headers {
            each(Text { field: "headers", entry: Some(name), text, place: Place::Anywhere });
        }
        for (field, text) in [("secret", &self.secret), ("client_cert", &self.client_cert)] {
            if let Some(text) = text {
                each(Text { field, entry: None, text, place: Place::Whole });
            }
        }
    }
}

/// Prints header names and whether a secret is set, but no values: they may be credentials, and this text reaches logs.
impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headers, signed) = (self.headers.keys(), self.secret.is_some());
        write!(f, "HttpTarget {{ method: {:?}, headers: {headers:?}, signed: {signed} }}", self.method)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}
