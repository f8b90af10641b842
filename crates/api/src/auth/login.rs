//! Begins and ends the sessions of browsers.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, StatusCode, request::Parts},
};
use everytick_domain::access::{NamedGrant, Token};
use everytick_engine::{
    Login,
    types::{AuditResult, SessionEnd},
};

use super::{
    Caller,
    authenticate::{by_session, find_token, is_open},
    cookie::{self, Cookie, is_secure},
    csrf,
    denied::RequestInfo,
    tenants,
};
use crate::{
    Api,
    error::{ApiError, Result},
};

pub(crate) const PATH: &str = "/auth/login";
/// Longest path to which a login leads back.
const NEXT_BYTES_MAX: usize = 1_000;

/// A request of a browser to the pages of the login, which need no credential.
pub(crate) struct Visit {
    api: Arc<Api>,
    info: RequestInfo,
    headers: HeaderMap,
    cookie: Cookie,
    pub(crate) secure: bool,
}

impl FromRequestParts<Arc<Api>> for Visit {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self> {
        let info = parts.extensions.get::<RequestInfo>().cloned().ok_or(ApiError::Internal)?;
        let secure = is_secure(&parts.headers, &parts.extensions, &api.hosts);
        let cookie = Cookie::read(&parts.headers, secure);
        Ok(Self { api: api.clone(), info, headers: parts.headers.clone(), cookie, secure })
    }
}

impl Visit {
    /// The caller whose session the browser has; `None` without a valid one.
    pub(crate) async fn caller(&self) -> Result<Option<Caller>> {
        let Some(secret) = self.cookie.secret() else { return Ok(None) };
        let (limits, RequestInfo { ip, request, .. }) = (&self.api.auth.limits, &self.info);
        match by_session(&self.api, limits, secret.clone(), &self.headers, *ip, request).await {
            Ok(caller) => Ok(Some(caller)),
            Err(ApiError::Unauthenticated | ApiError::TooFast(..)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether requests need no credential.
    pub(crate) async fn is_open(&self) -> Result<bool> {
        Ok(is_open(&self.api).await?)
    }

    /// Begins a session of the owner of this token. Returns the header with the cookie.
    pub(crate) async fn log_in_with_token(&self, text: &str) -> Result<HeaderValue> {
        csrf::from_own_page(&self.headers)?;
        let (limits, ip) = (&self.api.auth.limits, self.info.ip);
        let found = match Token::parse(text.trim()) {
            Ok(token) => find_token(&self.api, limits, &token.hash(), ip).await?,
            Err(_) => None,
        };
        let Some(found) = found else {
            let refused = limits.fail(ip);
            self.note_failed(refused.status()).await;
            return Err(refused);
        };
        let caller = Caller::token(&found, None, ip, self.info.request.clone());
        limits.check(&caller, PATH)?;
        let grant = &found.token.grant;
        let tenant = grant.tenant.map(tenants::name_of);
        let grants = vec![NamedGrant { tenant, role: grant.role, scope: grant.scope.clone() }];
        self.api.commands.access().note_use(&found.token.hash, ip.to_canonical().to_string());
        self.begin(&caller, grants).await
    }

    async fn begin(&self, caller: &Caller, grants: Vec<NamedGrant>) -> Result<HeaderValue> {
        let login = Login {
            user: caller.actor_name().to_owned(),
            token: caller.token_used().map(|token| token.hash),
            grants,
            tenant: None,
            ip: Some(self.info.ip.to_canonical().to_string()),
            // A new secret at each login: a cookie that another person has set in this browser gets no rights.
            replaces: self.cookie.secret().map(|secret| secret.hash()),
        };
        let access = self.api.commands.access();
        let (secret, _) = access.log_in(caller.tenant, &caller.actor, login).await?;
        cookie::begin(&secret, self.secure).ok_or(ApiError::Internal)
    }

    async fn note_failed(&self, status: StatusCode) {
        self.api.auth.denials.note(&self.api, &self.info, None, "login", status, AuditResult::Denied).await;
    }

    /// Ends the session of the browser, if it has one. `token` is the CSRF token of the form.
    pub(crate) async fn log_out(&self, token: Option<&str>) -> Result<()> {
        csrf::from_own_page(&self.headers)?;
        let Some(caller) = self.caller().await? else { return Ok(()) };
        let Some(session) = caller.own_session() else { return Ok(()) };
        csrf::check_change(&session.secret, token, &self.headers)?;
        let access = self.api.commands.access();
        access.end_session(caller.tenant, &caller.actor, session.record.id, SessionEnd::Logout).await?;
        Ok(())
    }
}

/// The path to which a login leads back: a path on this server only. Another host could imitate this server.
pub(crate) fn local_path(text: &str) -> Option<&str> {
    // Browsers read "\\" as "/" and ignore tabs and line ends, so such a text may name another host.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_path = text.starts_with('/') && !text.starts_with("//");
    (is_plain && is_path && text.len() <= NEXT_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_only_to_a_path_on_this_server() {
        for path in ["/", "/docs", "/docs?a=b#c", "/a//b", "/%2f%2fevil.example"] {
            assert_eq!(local_path(path), Some(path));
        }
        let long = format!("/{}", "a".repeat(1_000));
        for text in [
            "",
            "docs",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/\t/evil.example",
            "/\n/evil.example",
            " //evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/é",
            long.as_str(),
        ] {
            assert_eq!(local_path(text), None, "{text:?}");
        }
    }
}
