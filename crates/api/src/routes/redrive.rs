//! Commands on many runs of a job: cancel the open ones, redrive the failed ones.

use axum::Json;

use super::{Shared, State};
use crate::{
    body::JsonBody,
    error::{ApiError, Result},
    params::{JobPath, Params},
    wire::{
        Name, Problem,
        redrive::{CancelledJob, RedriveRequest, Redriven},
    },
};

/// Cancel every open run of a job
///
/// Cancels waiting and claimed runs; the job keeps its ticks. A webhook request is dropped; a command gets TERM, then KILL.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/cancel",
    tag = "jobs",
    params(("job" = Name, Path, description = "Name or id")),
    responses(
        (status = 200, description = "The cancelled runs; empty if none was open", body = CancelledJob),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel_job(
    State(api): Shared,
    JobPath(job): JobPath,
    params: Params,
) -> Result<Json<CancelledJob>> {
    params.finish()?;
    Ok(Json(api.commands.cancel_job(api.tenant(), &api.actor(), &job).await?.into()))
}

/// Redrive the failed runs of a job
///
/// Creates one new run for each failed run, with the cause `request`, for the same instant and with the same payload. The failed
/// run does not change. A repeated request returns the same new run, as long as that run is kept. The new runs start after runs
/// that are on time, one after another as the job's overlap policy allows.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/redrive",
    tag = "jobs",
    params(("job" = Name, Path, description = "Name or id")),
    request_body(content = RedriveRequest),
    responses(
        (status = 200, description = "Each failed run and its replacement", body = Redriven),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn redrive_job(
    State(api): Shared,
    JobPath(job): JobPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<Redriven>> {
    params.finish()?;
    let redrive = body.read::<RedriveRequest>()?.read(job).map_err(ApiError::Invalid)?;
    Ok(Json(api.commands.redrive(api.tenant(), &api.actor(), &redrive).await?.into()))
}
