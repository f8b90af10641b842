//! Flows: read, cancel, rerun.

use axum::{Json, response::Response};

use super::{Shared, State, created};
use crate::{
    body::JsonBody,
    error::Result,
    params::{Params, RunPath},
    wire::{
        IdempotencyKey, Problem,
        flow::{CancelledFlow, Flow, RerunRequest},
    },
};

/// Get a flow
///
/// While the root run is in progress, the answer shows the jobs that depend on it at present.
#[utoipa::path(
    get,
    path = "/api/v1/flows/{id}",
    tag = "flows",
    params(("id" = String, Path, format = Uuid, description = "The flow's id: the `flow` of its runs")),
    responses(
        (status = 200, description = "The flow and its jobs", body = Flow),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_flow(State(api): Shared, RunPath(id): RunPath, params: Params) -> Result<Json<Flow>> {
    params.finish()?;
    Ok(Json(api.queries().flow(api.tenant(), id).await?.into()))
}

/// Cancel a flow
///
/// Cancels its open runs, including their work, and starts no further run. A flow that has ended is refused.
#[utoipa::path(
    post,
    path = "/api/v1/flows/{id}/cancel",
    tag = "flows",
    params(("id" = String, Path, format = Uuid, description = "The flow's id")),
    responses(
        (status = 200, description = "The flow and the cancelled runs", body = CancelledFlow),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The flow has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel_flow(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
) -> Result<Json<CancelledFlow>> {
    params.finish()?;
    Ok(Json(api.commands.cancel_flow(api.tenant(), &api.actor(), id).await?.into()))
}

/// Rerun the failed jobs of a flow
///
/// Creates a new flow with new runs of the failed jobs and of all jobs that depend on them. Runs that ended before them count with
/// their old result. The old flow does not change.
#[utoipa::path(
    post,
    path = "/api/v1/flows/{id}/rerun",
    tag = "flows",
    params(
        ("id" = String, Path, format = Uuid, description = "The flow's id"),
        ("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Identifies this request and its repeats for one day"),
    ),
    request_body(content = Option<RerunRequest>),
    responses(
        (status = 201, description = "The new flow", body = Flow, headers(("Location" = String, description = "Path of the flow"))),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rerun_flow(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let idempotency = body.idempotency.clone();
    let from = body.read_or_default::<RerunRequest>()?.from.unwrap_or_default();
    let flow = api.commands.rerun_flow(api.tenant(), &api.actor(), id, from, idempotency).await?;
    Ok(created(&format!("/api/v1/flows/{}", flow.id), Flow::from(flow)))
}
