//! Backfills: create, list, read, cancel.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use everytick_domain::ids::BackfillId;

use super::{Shared, State, created};
use crate::{
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{BackfillPath, JobPath, Params},
    wire::{
        IdempotencyKey, Name, Problem,
        backfill::{Backfill, BackfillPage, BackfillRequest},
    },
};

/// Backfill: create runs for past ticks of a job
///
/// Creates one run for each tick of the job's present schedule from `from` to before `to`, except ticks that its
/// calendars exclude; at most 10,000. The runs have the cause `backfill` and are listed at the time of the backfill, not of
/// their ticks. They start after runs that are on time. At most 100 of them are open at a time. Under an overlap policy that
/// limits runs in progress, a run is created only when it can start. A backfill ends after at most 7 days. The records of the
/// ticks themselves do not change. Pausing the job does not stop a backfill; deleting it does.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/backfill",
    tag = "backfills",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Identifies this request and its repeats for one day"),
    ),
    request_body(content = BackfillRequest),
    responses(
        (status = 200, description = "The result of a dry run", body = Backfill),
        (status = 201, description = "The backfill, which has no runs yet", body = Backfill, headers(("Location" = String, description = "Path of the backfill"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn backfill_job(
    State(api): Shared,
    JobPath(job): JobPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let request: BackfillRequest = body.read()?;
    let (backfill, dry_run) = request.read(job, api.history, body.idempotency).map_err(ApiError::Invalid)?;
    if dry_run {
        let preview = api.commands.preview_backfill(api.tenant(), backfill.clone()).await?;
        return Ok(Json(Backfill::dry(&backfill, preview)).into_response());
    }
    let record = api.commands.backfill(api.tenant(), &api.actor(), backfill).await?;
    api.check_seen(&record.job_name)?;
    Ok(created(&format!("/api/v1/backfills/{}", record.id), Backfill::from(record)))
}

/// List the backfills of a job, newest first
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/backfills",
    tag = "backfills",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses(
        (status = 200, description = "A page of backfills", body = BackfillPage),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_backfills(
    State(api): Shared,
    JobPath(job): JobPath,
    mut params: Params,
) -> Result<Json<BackfillPage>> {
    let (limit, before) = paging::read::<BackfillId>(&mut params, api.tenant());
    params.finish()?;
    let job = api.queries().job_id(api.tenant(), &job).await?;
    let page = api.queries().backfills(api.tenant(), job, before, limit).await?;
    let items = page.items.into_iter().map(Backfill::from).collect();
    Ok(Json(BackfillPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

/// Read a backfill and its progress
#[utoipa::path(
    get,
    path = "/api/v1/backfills/{id}",
    tag = "backfills",
    params(("id" = String, Path, format = Uuid)),
    responses(
        (status = 200, description = "The backfill", body = Backfill),
        (status = 404, description = "No such backfill", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_backfill(
    State(api): Shared,
    BackfillPath(id): BackfillPath,
    params: Params,
) -> Result<Json<Backfill>> {
    params.finish()?;
    Ok(Json(api.queries().backfill(api.tenant(), id).await?.into()))
}

/// Cancel a backfill: create no more runs
///
/// Its open runs continue; with `cancel_runs`, they are cancelled too. If the backfill has ended, the request is
/// refused, unless `cancel_runs` finds open runs.
#[utoipa::path(
    post,
    path = "/api/v1/backfills/{id}/cancel",
    tag = "backfills",
    params(
        ("id" = String, Path, format = Uuid),
        ("cancel_runs" = Option<bool>, Query, description = "Also cancel its open runs"),
    ),
    responses(
        (status = 200, description = "The backfill", body = Backfill),
        (status = 404, description = "No such backfill", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The backfill has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel_backfill(
    State(api): Shared,
    BackfillPath(id): BackfillPath,
    mut params: Params,
) -> Result<Json<Backfill>> {
    let cancel_runs = params.flag("cancel_runs").unwrap_or(false);
    params.finish()?;
    Ok(Json(api.commands.cancel_backfill(api.tenant(), &api.actor(), id, cancel_runs).await?.into()))
}
