//! Runs for past ticks: asked for, looked at, cancelled.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use everytick_domain::ids::BackfillId;

use super::{Shared, created};
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

/// Make runs for past ticks of a job
///
/// One run for each tick that the job's schedule, as it is now, has from `from` to `to`, both included, without those that its
/// calendars leave out; at most 10,000. They have the cause `backfill`, stand in the history where they were made, wait behind what is on time, and are made little by
/// little: at most 100 of them are open, and under an overlap policy that limits what is in progress one is made only where it
/// can start. It ends after 7 days at the latest. What became of the ticks themselves stays as it is. A pause of the job does not stop a backfill; its deletion does.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/backfill",
    tag = "backfills",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Stands for this request and its repeats, for a day"),
    ),
    request_body(content = BackfillRequest),
    responses(
        (status = 200, description = "What a dry run found", body = Backfill),
        (status = 201, description = "The backfill, none of whose runs is made yet", body = Backfill, headers(("Location" = String, description = "Where the backfill stands"))),
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
    let asked: BackfillRequest = body.read()?;
    let (ask, dry_run) = asked.read(job, api.history, body.idempotency).map_err(ApiError::Invalid)?;
    if dry_run {
        let preview = api.commands.preview_backfill(api.tenant(), ask.clone()).await?;
        return Ok(Json(Backfill::dry(&ask, preview)).into_response());
    }
    let record = api.commands.backfill(api.tenant(), &api.actor(), ask).await?;
    Ok(created(&format!("/api/v1/backfills/{}", record.id), Backfill::from(record)))
}

/// The backfills of a job, newest first
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/backfills",
    tag = "backfills",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before", pattern = "^[A-Za-z0-9_-]+$"),
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
    let (limit, before) = paging::asked::<BackfillId>(&mut params);
    params.finish()?;
    let job = api.commands.store().get_job(api.tenant(), &job).await?.job.id;
    let page = api.commands.store().list_backfills(api.tenant(), job, before, limit).await?;
    let items = page.items.into_iter().map(Backfill::from).collect();
    Ok(Json(BackfillPage { items, next_cursor: page.next.as_ref().map(paging::cursor) }))
}

/// A backfill, and how far it has come
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
    Ok(Json(api.commands.store().get_backfill(api.tenant(), id).await?.into()))
}

/// Make no more runs of a backfill
///
/// Those that are open go on, unless `cancel_runs`. One that is over stays as it is.
#[utoipa::path(
    post,
    path = "/api/v1/backfills/{id}/cancel",
    tag = "backfills",
    params(
        ("id" = String, Path, format = Uuid),
        ("cancel_runs" = Option<bool>, Query, description = "Also cancel those of its runs that are open"),
    ),
    responses(
        (status = 200, description = "The backfill as it stands now", body = Backfill),
        (status = 404, description = "No such backfill", body = Problem, content_type = "application/problem+json"),
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
