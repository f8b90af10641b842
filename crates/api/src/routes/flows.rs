//! Flows: list, read, cancel, rerun.

use axum::{Json, response::Response};
use everytick_domain::flow::FlowState;
use everytick_engine::types::FlowFilter;

use super::{Shared, State, created};
use crate::{
    body::JsonBody,
    error::Result,
    paging::{self, FlowPosition},
    params::{FlowPath, Params},
    wire::{
        IdempotencyKey, Problem,
        flow::{CancelledFlow, Flow, FlowPage, FlowSummary, RerunRequest},
    },
};

/// List flows, newest first
///
/// A flow whose root run has not ended is listed only if that run is among the 10,000 newest runs in the period of the page.
#[utoipa::path(
    get,
    path = "/api/v1/flows",
    tag = "flows",
    params(
        ("from" = Option<String>, Query, format = DateTime, description = "Only flows of this instant or later: the instant of the root run, or of the rerun"),
        ("to" = Option<String>, Query, format = DateTime, description = "Only flows before this instant"),
        ("status" = Option<String>, Query, description = "States, separated by commas", pattern = "^(running|succeeded|failed|cancelled)(,(running|succeeded|failed|cancelled))*$", example = "running,failed"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of flows", body = FlowPage))
)]
pub(crate) async fn list_flows(State(api): Shared, mut params: Params) -> Result<Json<FlowPage>> {
    let states: Vec<&str> = FlowState::ALL.iter().map(|state| state.word()).collect();
    let (from, to) = params.period();
    let filter = FlowFilter {
        from,
        to,
        states: params.words("status", "state of a flow", &states, FlowState::from_word),
        ids: None,
    };
    let (limit, before) = paging::read::<FlowPosition>(&mut params, api.tenant());
    params.finish()?;
    let page = api.queries().flows(api.tenant(), &filter, before.map(|FlowPosition(id)| id), limit).await?;
    let items = page.items.iter().map(FlowSummary::from).collect();
    Ok(Json(FlowPage { items, next_cursor: page.next.map(|id| paging::cursor(&FlowPosition(id), api.tenant())) }))
}

/// Get a flow
///
/// While the root run is in progress, the answer shows the jobs that depend on it at present. The id of another run of the flow
/// also finds it.
#[utoipa::path(
    get,
    path = "/api/v1/flows/{id}",
    tag = "flows",
    params(("id" = String, Path, description = "The flow's id, which is the `flow` of its runs, or a beginning of at least 8 digits that no other flow has")),
    responses(
        (status = 200, description = "The flow and its jobs", body = Flow),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_flow(State(api): Shared, FlowPath(id): FlowPath, params: Params) -> Result<Json<Flow>> {
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
    params(("id" = String, Path, description = "The flow's id, or a beginning of at least 8 digits that no other flow has")),
    responses(
        (status = 200, description = "The flow and the cancelled runs", body = CancelledFlow),
        (status = 404, description = "No such flow", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The flow has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel_flow(
    State(api): Shared,
    FlowPath(id): FlowPath,
    params: Params,
) -> Result<Json<CancelledFlow>> {
    params.finish()?;
    Ok(Json(api.commands.cancel_flow(api.tenant(), &api.actor(), id).await?.into()))
}

/// Rerun the failed jobs of a flow
///
/// Creates a new flow with new runs of the failed jobs and of all jobs that depend on them. Other jobs of the flow
/// count with their old results. The old flow does not change.
#[utoipa::path(
    post,
    path = "/api/v1/flows/{id}/rerun",
    tag = "flows",
    params(
        ("id" = String, Path, description = "The flow's id, or a beginning of at least 8 digits that no other flow has"),
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
    FlowPath(id): FlowPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let idempotency = body.idempotency.clone();
    let from = body.read_or_default::<RerunRequest>()?.from.unwrap_or_default();
    let flow = api.commands.rerun_flow(api.tenant(), &api.actor(), id, from, idempotency).await?;
    Ok(created(&format!("/api/v1/flows/{}", flow.id), Flow::from(flow)))
}
