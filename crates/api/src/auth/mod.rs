//! Who calls, and what the caller may do.
//!
//! ```text
//! request -> admit: authenticate, look the route up in `routes`, check the permission -> handler with `State`
//! ```
//!
//! Handlers reach commands and queries only through [`State`], which carries the caller. So a handler cannot run without one.

mod routes;

use std::{ops::Deref, sync::Arc};

use axum::{
    extract::{self, FromRequestParts, MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use everytick_domain::{access::Permission, ids::TenantId};
use everytick_engine::{Queries, commands::Commands, types::Actor};

use crate::{
    Api,
    error::{ApiError, Result},
};

/// Most characters of a request id that a client sends.
const REQUEST_ID_CHARS_MAX: usize = 64;
const REQUEST_ID: HeaderName = HeaderName::from_static("everytick-request-id");

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    actor: Actor,
    tenant: TenantId,
    rights: Rights,
}

#[derive(Clone, Debug)]
enum Rights {
    /// The API is open: callers on this machine may do everything.
    All,
}

impl Caller {
    /// A program on this machine, while the API is open.
    fn local() -> Self {
        Self { actor: Actor("local".to_owned()), tenant: TenantId::DEFAULT, rights: Rights::All }
    }

    fn may(&self, _: Permission) -> bool {
        match self.rights {
            Rights::All => true,
        }
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

/// The API as one caller sees it.
pub(crate) struct Call {
    pub(crate) commands: Commands,
    caller: Caller,
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
        // `admit` adds the caller to each request of a known route.
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
    let mut response = match check(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn check(request: &Request) -> Result<Caller> {
    let caller = Caller::local();
    match permission_of(request) {
        Some(permission) if caller.may(permission) => Ok(caller),
        // A path or method without a handler: the router answers 404 or 405.
        None => Ok(caller),
        Some(permission) => Err(ApiError::NotPermitted(permission)),
    }
}

fn permission_of(request: &Request) -> Option<Permission> {
    let path = request.extensions().get::<MatchedPath>()?;
    routes::permission(request.method(), path.as_str())
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
