//! Health, readiness and metrics, for monitoring.

use axum::{Json, extract::State, http::header, response::IntoResponse};

use super::Public;
use crate::{
    error::{ApiError, Result},
    wire::{Problem, node::Health},
};

/// Check that the process answers
#[utoipa::path(get, path = "/healthz", tag = "node", responses((status = 200, description = "The process answers", body = Health)))]
pub(crate) async fn healthz(State(api): Public) -> Json<Health> {
    Json(Health { status: "ok", node: api.status.node().to_owned(), version: api.status.version().to_owned() })
}

/// Check that the node can do its work
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "node",
    responses(
        (status = 200, description = "The node can work", body = Health),
        (status = 503, description = "The node cannot work; the detail has the reasons", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn readyz(State(api): Public) -> Result<Json<Health>> {
    api.status.ready().map_err(ApiError::Unavailable)?;
    Ok(Json(Health { status: "ready", node: api.status.node().to_owned(), version: api.status.version().to_owned() }))
}

/// Metrics for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "node",
    responses((status = 200, description = "The metrics in the text format of Prometheus", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(api): Public) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (api.metrics_text)())
}
