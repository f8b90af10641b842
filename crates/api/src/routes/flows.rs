//! Flows: read, cancelled, and run again from what failed.

use axum::{Json, extract::State, response::Response};

use super::{Shared, created};
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
/// Also while the run that opens it goes on: then with the jobs that follow it at present.
#[utoipa::path(
    get,
    path = "/api/v1/flows/{id}",
    tag = "flows",
    params(("id" = String, Path, format = Uuid, description = "The flow's id: the `flow` of its runs")),
    responses(
        (status = 200, description = "The flow, with each of its jobs", body = Flow),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_flow(State(api): Shared, RunPath(id): RunPath, params: Params) -> Result<Json<Flow>> {
    params.finish()?;
    Ok(Json(api.commands.store().get_flow(api.tenant(), id).await?.into()))
}

/// Cancel a flow
///
/// What is open of it is cancelled, so that it reaches the work, and it starts nothing more. One that is over stays as it ended.
#[utoipa::path(
    post,
    path = "/api/v1/flows/{id}/cancel",
    tag = "flows",
    params(("id" = String, Path, format = Uuid, description = "The flow's id")),
    responses(
        (status = 200, description = "The flow, and the runs that were cancelled", body = CancelledFlow),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
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

/// Run a flow again from what failed
///
/// One new flow, of new runs of those jobs and of all that follows them. What had ended before them counts as it ended. The old
/// flow stays what it is.
#[utoipa::path(
    post,
    path = "/api/v1/flows/{id}/rerun",
    tag = "flows",
    params(
        ("id" = String, Path, format = Uuid, description = "The flow's id"),
        ("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Stands for this request and its repeats, for a day"),
    ),
    request_body(content = Option<RerunRequest>),
    responses(
        (status = 201, description = "The new flow", body = Flow, headers(("Location" = String, description = "Where the flow stands"))),
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
