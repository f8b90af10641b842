//! What is asked of many runs of a job at once: all that are open cancelled, those that failed driven again.

use axum::{Json, extract::State};

use super::Shared;
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
/// What waits or is being worked on; the job itself goes on. A request is dropped, a command gets TERM and then KILL.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/cancel",
    tag = "jobs",
    params(("job" = Name, Path, description = "Name or id")),
    responses(
        (status = 200, description = "The runs that were cancelled, none if none was open", body = CancelledJob),
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

/// Drive the failed runs of a job again
///
/// Each gets one new run in its place, with the cause `request`, for the same instant and with the same payload; the failed one
/// stays what it is. Asking again gives the same new run, as long as that is on the record. They wait, start one after another
/// as the job's overlap policy lets them, and behind runs on time.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/redrive",
    tag = "jobs",
    params(("job" = Name, Path, description = "Name or id")),
    request_body(content = RedriveRequest),
    responses(
        (status = 200, description = "Each failed run and the one in its place", body = Redriven),
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
    let ask = body.read::<RedriveRequest>()?.read(job).map_err(ApiError::Invalid)?;
    Ok(Json(api.commands.redrive(api.tenant(), &api.actor(), &ask).await?.into()))
}
