//! Authenticates callers and checks their permissions.
//!
//! ```text
//! request -> admit: `authenticate`, find the route in `routes`, check the permission and the `limits`
//!         -> `scope`: does the caller see what the path names? -> handler with `State`
//! ```
//!
//! Handlers reach commands and queries only through [`State`], which carries the caller. So a handler cannot run without one.
//! `denied` writes the audit rows of requests that were denied or failed. `login` begins and ends the sessions of browsers; `csrf`
//! checks that a change in a session comes from a page of this server.

mod authenticate;
mod caller;
mod certificate;
pub(crate) mod cookie;
mod csrf;
mod denied;
mod limits;
pub(crate) mod login;
mod proxy;
mod routes;
pub(crate) mod scope;
pub(crate) mod tenants;

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Deref,
    sync::Arc,
};

use axum::{
    extract::{self, FromRequestParts, MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use everytick_domain::{
    access::{EXPIRES_SOON, LifetimePolicy, Permission, RunKey, Scope},
    ids::{Fence, RunId, TenantId},
    invalid::Invalid,
};
use everytick_engine::{
    Queries,
    commands::Commands,
    types::{Actor, StoreError},
};

use crate::{
    Api,
    error::{ApiError, Result},
    server::RemoteAddress,
};

pub use authenticate::AuthMode;
pub(crate) use caller::{Caller, OwnSession, resolve};
pub use certificate::{AlternativeName, CertGrant};
pub use proxy::{ProxyAuth, Trusted};
pub(crate) use routes::methods;

use authenticate::{Limits, authenticate, is_open};
use cookie::{Cookie, is_secure};
use denied::{Denials, RequestInfo, refusal};

/// Maximum number of characters of a request id that a client sends.
const REQUEST_ID_CHARS_MAX: usize = 64;
const REQUEST_ID: HeaderName = HeaderName::from_static("everytick-request-id");
/// The response header with the time at which the caller's token expires. Sent only in the last days before that.
const TOKEN_EXPIRES: HeaderName = HeaderName::from_static("everytick-token-expires");

/// How the API authenticates its callers.
#[derive(Debug, Default)]
pub struct Auth {
    pub mode: AuthMode,
    pub lifetimes: LifetimePolicy,
    /// The key of run tokens; `None` if none are accepted.
    pub run_key: Option<RunKey>,
    /// The proxy that authenticates users.
    proxy: Option<ProxyAuth>,
    /// The grants of client certificates.
    certificates: Vec<CertGrant>,
    limits: Limits,
    denials: Denials,
}

impl Auth {
    #[must_use]
    pub fn new(mode: AuthMode, lifetimes: LifetimePolicy, run_key: Option<RunKey>) -> Self {
        Self { mode, lifetimes, run_key, ..Self::default() }
    }

    #[must_use]
    pub fn with_proxy(self, proxy: Option<ProxyAuth>) -> Self {
        Self { proxy, ..self }
    }

    #[must_use]
    pub fn with_certificates(self, certificates: Vec<CertGrant>) -> Self {
        Self { certificates, ..self }
    }
}

/// Commands and queries that only a caller can reach.
#[derive(Debug)]
pub struct Guarded(Commands);

impl From<Commands> for Guarded {
    fn from(commands: Commands) -> Self {
        Self(commands)
    }
}

impl Guarded {
    /// The credentials, which are checked before there is a caller.
    fn access(&self) -> &everytick_engine::Access {
        self.0.access()
    }
}

/// The API as one caller sees it.
pub(crate) struct Call {
    pub(crate) commands: Commands,
    pub(crate) caller: Caller,
    api: Arc<Api>,
}

impl Call {
    pub(crate) fn queries(&self) -> &Queries {
        self.commands.queries()
    }
    pub(crate) fn tenant(&self) -> TenantId {
        self.caller.tenant
    }
    pub(crate) fn actor(&self) -> Actor {
        self.caller.actor.clone()
    }
    pub(crate) fn may(&self, permission: Permission) -> bool {
        self.caller.may(permission)
    }
    pub(crate) fn scope(&self) -> &Scope {
        self.caller.scope()
    }
    /// Whether the caller sees only a part of its tenant.
    pub(crate) fn is_limited(&self) -> bool {
        self.scope().job_prefix.is_some() || self.scope().queues.is_some()
    }

    /// Whether the caller would still be admitted: its token may end during a long request.
    pub(crate) async fn is_admitted(&self) -> Result<bool, StoreError> {
        let access = self.commands.access();
        let token = self.caller.token_used().map(|token| &token.hash);
        match (self.caller.own_session(), token, self.caller.claim()) {
            (Some(session), ..) => access.is_session_valid(&session.record.hash, token).await,
            (None, Some(hash), _) => access.is_valid(hash).await,
            // A run token ends with its claim, which every write checks.
            (None, None, Some(_)) => Ok(true),
            // A proxy or a certificate vouches for the whole request. Without either, the API is open.
            (None, None, None) => Ok(self.caller.grant().is_some() || is_open(&self.api).await?),
        }
    }

    /// Checks that the caller may work on a claim. A run token permits its own claim, a worker token the claims of its
    /// queues.
    pub(crate) async fn check_claim(&self, run: RunId, fence: Fence) -> Result<()> {
        if self.caller.claim().is_some_and(|own| (own.run, own.fence) != (run, fence)) {
            let why = "the run token permits only the claim with which it was sent";
            return Err(ApiError::NotAllowed(Invalid::new("fence", why)));
        }
        match self.claims_seen(&[run]).await?.as_slice() {
            [true] => Ok(()),
            _ => Err(ApiError::NotFound("run")),
        }
    }

    /// Which of these runs are in a queue of the caller's scope.
    pub(crate) async fn claims_seen(&self, runs: &[RunId]) -> Result<Vec<bool>> {
        if self.scope().allows_every_queue() {
            return Ok(vec![true; runs.len()]);
        }
        let queues = self.commands.queues_of(self.tenant(), runs).await?;
        let seen = |queue: &Option<String>| queue.as_deref().is_some_and(|queue| self.scope().allows_queue(queue));
        Ok(queues.iter().map(seen).collect())
    }
}

/// The parts of the API that are the same for every caller.
impl Deref for Call {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

/// Gives a handler the API as its caller sees it.
pub(crate) struct State(pub(crate) Arc<Call>);

impl FromRequestParts<Arc<Api>> for State {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self> {
        // `admit` adds the caller to each request of a route that is not public.
        let caller = parts.extensions.get::<Caller>().cloned().ok_or(ApiError::Internal)?;
        Ok(Self(Arc::new(Call { commands: api.commands.0.clone(), caller, api: api.clone() })))
    }
}

/// Authenticates the caller and checks its permission for the route. Answers carry the id of their request.
pub(crate) async fn admit(extract::State(api): extract::State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let id = match request_id(&api, request.headers()) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let info = RequestInfo {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        ip: client_ip(&api, &request),
        request: id.to_str().unwrap_or_default().to_owned(),
    };
    let manages = routes::manages(request.method(), request.extensions().get::<MatchedPath>().map(MatchedPath::as_str));
    let secure = is_secure(request.headers(), request.extensions(), &api.hosts);
    let with_header = request.headers().contains_key(header::AUTHORIZATION);
    let with_proxy = api.auth.proxy.as_ref().is_some_and(|proxy| proxy.names_user(request.headers()));
    let with_cookie = Cookie::read(request.headers(), secure) != Cookie::None;
    request.extensions_mut().insert(info.clone());
    let (mut response, caller) = match check(&api, &mut request, &info).await {
        Ok(caller) => {
            if let Some(caller) = &caller {
                request.extensions_mut().insert(caller.clone());
            }
            (next.run(request).await, caller)
        }
        Err((error, caller)) => (error.into_response(), caller),
    };
    let status = response.status();
    let refused = refusal(status, with_header || with_cookie || with_proxy, manages && caller.is_some());
    if let Some(result) = refused.filter(|_| info.path != login::PATH) {
        api.auth.denials.note(&api, &info, caller.as_ref(), result.word(), status, result).await;
    }
    let is_over = with_cookie && !with_header && status == StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    if is_over {
        // Otherwise each further request of the browser would count as a failed authentication.
        headers.extend(cookie::end(secure).map(|remove| (header::SET_COOKIE, remove)));
    }
    headers.insert(REQUEST_ID, id);
    headers.extend(caller.as_ref().and_then(expires_soon).map(|at| (TOKEN_EXPIRES, at)));
    response
}

/// Returns the caller of an allowed request; `None` if the route is public.
async fn check(
    api: &Api,
    request: &mut Request,
    info: &RequestInfo,
) -> Result<Option<Caller>, (ApiError, Option<Caller>)> {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str).unwrap_or_default();
    let permission = match routes::permission(request.method(), route) {
        // A path or method without a handler: the router answers 404 or 405.
        None | Some(Permission::Public) => return Ok(None),
        Some(permission) => permission,
    };
    let limits = &api.auth.limits;
    let authenticated = authenticate(api, limits, request, info.ip, &info.request).await;
    let caller = authenticated.map_err(|error| (error, None))?;
    let allowed = csrf::check(&caller, request.method(), request.headers());
    if let Err(error) = allowed.and_then(|()| limits.check(&caller, route)) {
        return Err((error, Some(caller)));
    }
    let may = caller.may(permission) && caller.claim().is_none_or(|_| routes::for_run_tokens(route));
    if may { Ok(Some(caller)) } else { Err((ApiError::NotPermitted(permission), Some(caller))) }
}

/// The other end of the connection; loopback in tests without one.
fn peer(request: &Request) -> RemoteAddress {
    let none = RemoteAddress { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), unix: false };
    request.extensions().get::<RemoteAddress>().copied().unwrap_or(none)
}

/// The address of the client. A trusted proxy names it.
fn client_ip(api: &Api, request: &Request) -> IpAddr {
    let peer = peer(request);
    api.auth.proxy.as_ref().map_or(peer.ip, |proxy| proxy.client_ip(peer, request.headers()))
}

fn expires_soon(caller: &Caller) -> Option<HeaderValue> {
    let token = caller.own_token()?;
    let at = token.expires_at?;
    let soon = caller.now()?.plus(EXPIRES_SOON) >= at;
    soon.then(|| HeaderValue::from_str(&at.to_string()).ok()).flatten()
}

/// The id that the client sends, or a new one.
fn request_id(api: &Api, headers: &HeaderMap) -> Result<HeaderValue> {
    let Some(given) = headers.get(&REQUEST_ID) else {
        let id = api.commands.0.new_request_id();
        return HeaderValue::from_str(&id).map_err(|_| ApiError::Internal);
    };
    let bytes = given.as_bytes();
    let sound = (1..=REQUEST_ID_CHARS_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    if sound {
        return Ok(given.clone());
    }
    let shown = String::from_utf8_lossy(bytes).chars().take(REQUEST_ID_CHARS_MAX).collect::<String>();
    let message = format!("{shown:?} is not a request id; write 1 to {REQUEST_ID_CHARS_MAX} visible ASCII characters");
    Err(ApiError::malformed(REQUEST_ID.as_str(), message))
}
