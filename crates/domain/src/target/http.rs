//! `http`: a node calls a webhook.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Upper limit of an HTTP job's `timeout`: a request occupies a slot and a connection for as long as it lasts.
pub const HTTP_TIMEOUT_MAX: Span = Span::hours(1);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpTarget {
    pub url: String,
    pub method: HttpMethod,
    pub headers: BTreeMap<String, String>,
    /// The Standard Webhooks secret (`whsec_...`); `None`: requests are not signed.
    pub secret: Option<String>,
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
