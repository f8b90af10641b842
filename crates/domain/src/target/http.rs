//! `http`: a node calls a webhook.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{Destination, TargetRules};
use crate::time::Span;

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
}

impl HttpTarget {
    /// A POST to `url`, without headers and unsigned.
    #[must_use]
    pub const fn post(url: String) -> Self {
        Self { url, method: HttpMethod::Post, headers: BTreeMap::new(), secret: None }
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
