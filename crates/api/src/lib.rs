//! The HTTP API: it reads requests, asks the engine's commands or the store, and writes answers. It decides nothing.
//! `wire` holds the only public serde types; `error` alone knows status codes; `guard` says who may ask; `server` limits what
//! connections may take.

mod body;
mod docs;
mod document;
mod error;
mod guard;
mod idempotency;
mod in_flight;
mod paging;
mod params;
mod routes;
mod server;
mod version;
mod wire;

use std::{any::Any, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
};
use everytick_domain::{ids::TenantId, time::Span};
use everytick_engine::{commands::Commands, store::Actor};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

pub use document::openapi;
pub use in_flight::{BYTES_IN_FLIGHT_MAX, InFlight};
pub use routes::Batches;
pub use server::{ServerLimits, serve};

use error::ApiError;
use wire::job::Allowed;

/// A request is read and answered within this; what streams (a batch, a live log) goes on after its first bytes.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// How the node does. Asked at every `/readyz`, so it should know without waiting.
pub trait Status: Send + Sync + 'static {
    /// Why the node cannot do its work, if it cannot.
    fn ready(&self) -> Result<(), String>;
    fn node(&self) -> &str;
    fn version(&self) -> &str;
}

/// What the API needs of its process.
pub struct Api {
    pub commands: Commands,
    /// Renders what `/metrics` answers.
    pub metrics_text: Arc<dyn Fn() -> String + Send + Sync>,
    pub status: Arc<dyn Status>,
    /// Whether jobs may have shell targets.
    pub shell_enabled: bool,
    /// Ticks of one job come no closer together.
    pub min_interval: Span,
    /// How long ended runs are kept.
    pub history: Span,
    /// The batches that are being taken.
    pub batches: Batches,
    /// The bytes of large answers and request bodies.
    pub in_flight: InFlight,
    /// Where it is bound, the port as it is (not 0): `Host` and `Origin` are held against it.
    pub listen: SocketAddr,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Api {
    /// Until there are tokens, everybody on this machine is the same one.
    fn actor(&self) -> Actor {
        Actor("local".to_owned())
    }
    fn allowed(&self) -> Allowed {
        Allowed { shell: self.shell_enabled, min_interval: self.min_interval }
    }
    fn tenant(&self) -> TenantId {
        TenantId::DEFAULT
    }
}

/// Everything under one router, ready to be served.
pub fn router(api: Api) -> Router {
    with_guards(api, routes::all())
}

/// Only how the node does: for one that does not answer the API.
pub fn node_router(api: Api) -> Router {
    with_guards(api, routes::of_the_node())
}

fn with_guards(api: Api, routes: OpenApiRouter<Arc<Api>>) -> Router {
    let api = Arc::new(api);
    let (router, _) = routes.split_for_parts();
    router
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .fallback(async || ApiError::NoSuchPath)
        .layer(from_fn(within_time))
        .layer(from_fn_with_state(api.clone(), in_flight::limit))
        .layer(from_fn_with_state(api.clone(), guard::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(guard::harden))
        .with_state(api)
}

async fn within_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIME_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::TooSlow.into_response(),
    }
}

fn panicked(cause: Box<dyn Any + Send>) -> Response {
    let cause = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
    tracing::error!(cause = cause.unwrap_or("unknown"), "a request panicked");
    ApiError::Internal.into_response()
}
