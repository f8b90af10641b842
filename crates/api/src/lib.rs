//! The HTTP API: reads requests, calls the engine's commands and queries, and writes answers. It contains no scheduling rules.
//! `wire` has the only public serde types. Only `error` knows status codes. `guard` decides which callers are allowed.
//! `server` limits connections.

mod accepts;
mod auth;
mod body;
mod docs;
mod document;
mod elsewhere;
mod error;
mod guard;
mod hosts;
mod idempotency;
mod in_flight;
mod missing;
mod paging;
mod params;
mod prefix;
mod routes;
mod server;
mod version;
mod warnings;
mod wire;

use std::{any::Any, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
};
use everytick_domain::time::Span;
use everytick_targets::TargetSettings;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

pub use auth::{Auth, AuthMode, Guarded};
pub use document::openapi;
pub use hosts::{AllowedHost, Hosts, PublicUrl};
pub use in_flight::{BYTES_IN_FLIGHT_MAX, InFlight};
pub use routes::Batches;
pub use server::{ClientAuth, ClientCertificate, Listener, ServerLimits, TLS_CHECK_EVERY, Tls, TlsFiles, serve};

use error::ApiError;

/// Time limit for reading and answering one request. A streamed answer (a batch, a live log) may continue after its first bytes.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// State of the node. Called at every `/readyz`, so it must not block.
pub trait Status: Send + Sync + 'static {
    /// `Err` with the reason when the node cannot do its work.
    fn ready(&self) -> Result<(), String>;
    fn node(&self) -> &str;
    fn version(&self) -> &str;
}

/// What the API needs from its process.
pub struct Api {
    pub commands: Guarded,
    /// Renders the text of `/metrics`.
    pub metrics_text: Arc<dyn Fn() -> String + Send + Sync>,
    pub status: Arc<dyn Status>,
    /// The operator's settings for targets, which decide what jobs may name.
    pub targets: TargetSettings,
    /// Minimum distance between two ticks of one job.
    pub min_interval: Span,
    /// How long the history of ended runs is kept.
    pub history: Span,
    /// How callers are authenticated.
    pub auth: Auth,
    /// Limits the batches in progress.
    pub batches: Batches,
    /// Limits the memory of large answers and request bodies.
    pub in_flight: InFlight,
    /// The names of this server, against which `Host` and `Origin` are checked.
    pub hosts: Hosts,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// A router with every route.
pub fn router(api: impl Into<Arc<Api>>) -> Router {
    with_guards(api.into(), routes::all())
}

/// A router with only health, readiness and metrics, for a node without the role `api`.
pub fn node_router(api: impl Into<Arc<Api>>) -> Router {
    with_guards(api.into(), routes::of_the_node())
}

/// A router with only the metrics, for a listener that needs no credential.
pub fn metrics_router(api: Arc<Api>) -> Router {
    routes::metrics()
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .fallback(async || ApiError::NoSuchPath)
        .layer(from_fn(within_time))
        .layer(from_fn_with_state(api.clone(), guard::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(guard::harden))
        .with_state(api)
}

fn with_guards(api: Arc<Api>, routes: OpenApiRouter<Arc<Api>>) -> Router {
    let (router, _) = routes.split_for_parts();
    router
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .fallback(async || ApiError::NoSuchPath)
        .layer(from_fn_with_state(api.clone(), auth::scope::check))
        .layer(from_fn_with_state(api.clone(), missing::name))
        .layer(from_fn(within_time))
        .layer(from_fn_with_state(api.clone(), in_flight::limit))
        .layer(from_fn_with_state(api.clone(), auth::admit))
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
