//! Writes audit rows of denied requests, and of changes of credentials and secrets that failed. Their rate is limited for each
//! credential, and for each address without a valid credential. The next row contains the number of requests that got no row.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::http::{Method, StatusCode};
use everytick_domain::ids::{TenantId, TokenId};
use everytick_engine::types::{Actor, ActorKind, AuditResult};
use serde_json::json;

use super::{
    caller::Caller,
    limits::{Limiter, Rate, now},
};
use crate::Api;

const PATH_CHARS_MAX: usize = 200;
const KEYS_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    Token(TokenId),
    Address(IpAddr),
}

#[derive(Debug)]
pub(super) struct Denials {
    limiter: Limiter<Key>,
    /// Denied requests without a row.
    unlisted: Mutex<HashMap<Key, u64>>,
}

impl Default for Denials {
    fn default() -> Self {
        Self { limiter: Limiter::new(Rate::one_per(Duration::from_secs(1), 60)), unlisted: Mutex::default() }
    }
}

/// The data of a request that its audit row contains, if it is denied.
#[derive(Clone, Debug)]
pub(super) struct RequestInfo {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) ip: IpAddr,
    pub(super) request: String,
}

/// Whether an answer needs an audit row, and with which result. 401 and 403 do if the request had a credential. A change of
/// credentials or secrets that was refused for another reason does too: a second rotation of a token is a sign of theft.
pub(super) fn refusal(status: StatusCode, with_credential: bool, manages: bool) -> Option<AuditResult> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => with_credential.then_some(AuditResult::Denied),
        StatusCode::TOO_MANY_REQUESTS => None,
        _ if status.is_client_error() || status.is_server_error() => manages.then_some(AuditResult::Failed),
        _ => None,
    }
}

impl Denials {
    /// Writes an audit row about a request that changed nothing: it was denied or has failed.
    pub(super) async fn note(
        &self,
        api: &Api,
        info: &RequestInfo,
        caller: Option<&Caller>,
        action: &str,
        status: StatusCode,
        result: AuditResult,
    ) {
        let anonymous = || Actor {
            name: "anonymous".to_owned(),
            kind: ActorKind::Anonymous,
            token: None,
            ip: Some(info.ip),
            request: Some(info.request.clone()),
        };
        let (tenant, actor) = match caller {
            Some(caller) => (caller.tenant, caller.actor.clone()),
            None => (TenantId::DEFAULT, anonymous()),
        };
        let key = actor.token.map_or(Key::Address(info.ip), Key::Token);
        let Some(unlisted) = self.unlisted_before(key) else { return };
        let path: String = info.path.chars().take(PATH_CHARS_MAX).collect();
        let detail = json!({ "status": status.as_u16(), "not_listed": unlisted }).to_string();
        let subject = format!("{} {path}", info.method);
        if let Err(error) = api.commands.access().note_refused(tenant, &actor, action, &subject, &detail, result).await
        {
            tracing::warn!(%error, "could not write the audit row of a refused request");
        }
    }

    /// `Some` if this denied request gets a row: the number of earlier requests of its key that got no row.
    fn unlisted_before(&self, key: Key) -> Option<u64> {
        let listed = self.limiter.take(key, now()).is_ok();
        let mut unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        if listed {
            return Some(unlisted.remove(&key).unwrap_or(0));
        }
        if unlisted.len() < KEYS_MAX || unlisted.contains_key(&key) {
            *unlisted.entry(key).or_default() += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_has_a_row_if_it_was_denied_or_would_have_changed_a_credential() {
        let row = |status: u16, with_credential, manages| {
            refusal(StatusCode::from_u16(status).unwrap(), with_credential, manages).map(AuditResult::word)
        };
        for status in [401, 403] {
            assert_eq!((row(status, true, true), row(status, false, true)), (Some("denied"), None));
        }
        for status in [400, 404, 409, 422, 500, 503] {
            assert_eq!((row(status, true, true), row(status, true, false)), (Some("failed"), None));
        }
        assert_eq!((row(429, true, true), row(201, true, true), row(200, false, true)), (None, None, None));
    }

    #[test]
    fn sixty_rows_a_minute_and_then_a_count() {
        let (denials, key) = (Denials::default(), Key::Address([10, 0, 0, 1].into()));
        assert!((0..60).all(|_| denials.unlisted_before(key) == Some(0)));
        assert_eq!((denials.unlisted_before(key), denials.unlisted_before(key)), (None, None));
        assert_eq!(denials.unlisted.lock().unwrap().get(&key), Some(&2));
        assert_eq!(denials.unlisted_before(Key::Address([10, 0, 0, 2].into())), Some(0), "another address");
    }
}
