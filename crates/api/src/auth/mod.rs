//! Authenticates callers and checks their permissions.
//!
//! ```text
//! request -> admit: `authenticate`, find the route in `routes`, check the permission and the `limits`
//!         -> `scope`: does the caller see what the path names? -> handler with `State`
//! ```
//!
//! Handlers reach commands and queries only through [`State`], which carries the caller. So a handler cannot run without one.
//! `denied` writes the audit rows of denied requests.

mod authenticate;
mod caller;
mod denied;
mod limits;
mod routes;
pub(crate) mod scope;

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Deref,
    sync::{Arc, OnceLock},
};

use axum::{
    extract::{self, FromRequestParts, MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use everytick_domain::{
    access::{EXPIRES_SOON, LifetimePolicy, Permission, RunKey, Scope},
    ids::{Fence, RunId, TenantId},
    invalid::Invalid,
    tenant::{Quotas, TenantState},
};
use everytick_engine::{
    Queries,
    commands::Commands,
    types::{Actor, StoreError},
};

use everytick_targets::TenantRules;

use crate::{
    Api,
    elsewhere::Elsewhere,
    error::{ApiError, Result},
    server::RemoteAddress,
    wire::job::Allowed,
};

pub use authenticate::AuthMode;
pub(crate) use caller::Caller;

use authenticate::{Limits, authenticate, is_open};
use denied::{Denials, RequestInfo};

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
    limits: Limits,
    denials: Denials,
}

impl Auth {
    #[must_use]
    pub fn new(mode: AuthMode, lifetimes: LifetimePolicy, run_key: Option<RunKey>) -> Self {
        Self { mode, lifetimes, run_key, ..Self::default() }
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
    fn tenants(&self) -> &everytick_engine::Tenants {
        self.0.tenants()
    }
}

/// The API as one caller sees it.
pub(crate) struct Call {
    pub(crate) commands: Commands,
    pub(crate) caller: Caller,
    /// What the tenant permits its jobs to do, or why that cannot be read. Read at its first use.
    rules: OnceLock<Result<TenantRules, String>>,
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

    /// What the operator and the tenant allow jobs to do.
    pub(crate) fn allowed<'a>(&'a self, elsewhere: &'a Elsewhere) -> Result<Allowed<'a>> {
        let within = self.caller.within.as_ref().ok_or(ApiError::Internal)?;
        let own = within.layers().effective(Quotas::default());
        let min_interval = own.min_interval.map_or(self.api.min_interval, |own| own.max(self.api.min_interval));
        let rules = || TenantRules::of(within.shell, [&within.egress, &within.own_egress]);
        let tenant = self.rules.get_or_init(rules).as_ref().map_err(|why| ApiError::Unreadable(why.clone()))?;
        Ok(Allowed { targets: &self.api.targets, tenant, elsewhere, min_interval })
    }

    /// Whether the caller would still be admitted: its token may end during a long request, or its tenant may be suspended.
    pub(crate) async fn is_admitted(&self) -> Result<bool, StoreError> {
        if self.commands.tenants().get(self.tenant()).await?.state != TenantState::Active {
            return Ok(false);
        }
        match (self.caller.own_hash(), self.caller.claim()) {
            (Some(hash), _) => self.commands.access().is_valid(hash).await,
            // A run token ends with its claim, which every write checks.
            (None, Some(_)) => Ok(true),
            (None, None) => is_open(&self.api).await,
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
        let commands = api.commands.0.clone();
        Ok(Self(Arc::new(Call { commands, caller, rules: OnceLock::new(), api: api.clone() })))
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
        ip: peer(&request),
        request: id.to_str().unwrap_or_default().to_owned(),
    };
    let with_credential = request.headers().contains_key(axum::http::header::AUTHORIZATION);
    let (mut response, caller) = match check(&api, &mut request, &info).await {
        Ok(caller) => {
            if let Some(caller) = &caller {
                request.extensions_mut().insert(caller.clone());
            }
            (next.run(request).await, caller)
        }
        Err((error, caller)) => (error.into_response(), caller),
    };
    if with_credential && matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        api.auth.denials.note(&api, &info, caller.as_ref(), response.status()).await;
    }
    let headers = response.headers_mut();
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
    let mut caller = authenticated.map_err(|error| (error, None))?;
    if let Err(error) = limits.check(&caller, route) {
        return Err((error, Some(caller)));
    }
    // The routes of the operator act in no tenant.
    if let Some(tenant) = caller.acts_in().filter(|_| permission.name() != Permission::Instance.name()) {
        match api.commands.tenants().get(tenant).await {
            Ok(tenant) if tenant.state == TenantState::Active || routes::while_suspended(request.method(), route) => {
                caller.within = Some(tenant);
            }
            Ok(_) => return Err((ApiError::TenantSuspended, Some(caller))),
            // The tenant was removed.
            Err(StoreError::NotFound(_)) => return Err((ApiError::TenantSuspended, Some(caller))),
            Err(error) => return Err((error.into(), Some(caller))),
        }
    }
    let may = caller.may(permission) && caller.claim().is_none_or(|_| routes::for_run_tokens(route));
    if may { Ok(Some(caller)) } else { Err((ApiError::NotPermitted(permission), Some(caller))) }
}

/// The address of the caller; loopback in tests without a connection.
fn peer(request: &Request) -> IpAddr {
    request.extensions().get::<RemoteAddress>().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0)
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
