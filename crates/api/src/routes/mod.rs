//! One file per resource. Each handler has its OpenAPI description next to it; `all` adds both, so router and document agree.

mod audit;
mod backfills;
mod batch;
mod calendars;
mod cluster;
mod explain;
mod flows;
mod jobs;
mod node;
mod queues;
mod redrive;
mod runs;
mod schedules;
mod secrets;
mod tenants;
mod tokens;

use std::sync::Arc;

use axum::{
    Json, Router, extract,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use everytick_domain::ids::Version;
use serde::Serialize;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use crate::auth::State;
use crate::{Api, docs, version::etag};

pub use batch::Batches;

/// The argument of a handler that serves an authenticated caller.
pub(crate) type Shared = State;
/// The argument of a handler that needs no caller.
pub(crate) type Public = extract::State<Arc<Api>>;

pub(crate) fn all() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(jobs::list_jobs, jobs::create_job))
        .routes(routes!(batch::create_jobs))
        .routes(routes!(jobs::get_job, jobs::replace_job, jobs::patch_job, jobs::delete_job))
        .routes(routes!(jobs::pause_job))
        .routes(routes!(jobs::resume_job))
        .routes(routes!(jobs::trigger_job))
        .routes(routes!(redrive::cancel_job))
        .routes(routes!(redrive::redrive_job))
        .routes(routes!(backfills::backfill_job))
        .routes(routes!(backfills::list_backfills))
        .routes(routes!(backfills::get_backfill))
        .routes(routes!(backfills::cancel_backfill))
        .routes(routes!(runs::list_job_runs))
        .routes(routes!(jobs::next_ticks))
        .routes(routes!(explain::explain_job))
        .routes(routes!(explain::explain_one_run))
        .routes(routes!(schedules::preview_schedule))
        .routes(routes!(calendars::list_calendars))
        .routes(routes!(calendars::get_calendar, calendars::put_calendar, calendars::delete_calendar))
        .routes(routes!(secrets::list_secrets))
        .routes(routes!(secrets::get_secret, secrets::put_secret, secrets::delete_secret))
        .routes(routes!(secrets::rotate_secret))
        .routes(routes!(runs::list_runs))
        .routes(routes!(runs::get_run))
        .routes(routes!(runs::list_attempts))
        .routes(routes!(runs::get_log, queues::add_log))
        .routes(routes!(runs::cancel_run))
        .routes(routes!(runs::rerun))
        .routes(routes!(runs::settle_run))
        .routes(routes!(flows::list_flows))
        .routes(routes!(flows::get_flow))
        .routes(routes!(flows::cancel_flow))
        .routes(routes!(flows::rerun_flow))
        .routes(routes!(queues::beat))
        .routes(routes!(queues::list_queues))
        .routes(routes!(queues::get_queue, queues::set_queue))
        .routes(routes!(queues::claim_runs))
        .routes(routes!(queues::leave_queue))
        .routes(routes!(queues::release_run))
        .routes(routes!(queues::settle_runs))
        .routes(routes!(audit::list_audit))
        .routes(routes!(tenants::list_tenants, tenants::create_tenant))
        .routes(routes!(tenants::get_tenant, tenants::update_tenant, tenants::delete_tenant))
        .routes(routes!(tenants::suspend_tenant))
        .routes(routes!(tenants::resume_tenant))
        .routes(routes!(tenants::narrow_tenant))
        .routes(routes!(tokens::get_me))
        .routes(routes!(tokens::list_tokens, tokens::create_token))
        .routes(routes!(tokens::get_token, tokens::revoke_token))
        .routes(routes!(tokens::rotate_token))
        .routes(routes!(cluster::get_cluster))
        .merge(of_the_node())
        .routes(routes!(docs::home))
        .routes(routes!(docs::openapi_json))
        .routes(routes!(docs::page))
        .routes(routes!(docs::style))
}

/// Health, readiness and metrics of the node.
pub(crate) fn of_the_node() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(node::healthz)).routes(routes!(node::readyz)).routes(routes!(node::metrics))
}

/// The metrics alone.
pub(crate) fn metrics() -> Router<Arc<Api>> {
    Router::new().route("/metrics", get(node::metrics))
}

/// Adds the `ETag` of a versioned resource.
fn tagged(version: Version, mut response: Response) -> Response {
    if let Some(tag) = etag(version) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// A 201 with the `Location` of the new resource.
fn created(location: &str, body: impl Serialize) -> Response {
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
