//! Queues, and the requests of the workers that claim from them.

use std::{future::pending, time::Duration};

use axum::Json;
use everytick_domain::{run, tenant::TenantState};
use everytick_engine::{
    commands::{Work, WorkRequest},
    types::StoreError,
};

use futures::FutureExt as _;

use super::{Shared, State};
use crate::{
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{Params, QueuePath, RunPath},
    server::Carrier,
    wire::{
        Name, Problem,
        queue::{
            BeatAnswer, BeatRequest, ClaimAnswer, ClaimRequest, ClaimedRun, LeaveAnswer, LeaveRequest, LogAnswer,
            LogRequest, Queue, QueuePage, QueueRequest, ReleaseAnswer, SettleAnswers, SettleBatch, SettleResult,
        },
    },
};

/// List queues, by name
#[utoipa::path(
    get,
    path = "/api/v1/queues",
    tag = "queues",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of queues: those that jobs use or that have limits", body = QueuePage))
)]
pub(crate) async fn list_queues(State(api): Shared, mut params: Params) -> Result<Json<QueuePage>> {
    let (limit, from) = paging::read::<String>(&mut params, api.tenant());
    params.finish()?;
    let page = api.queries().queues(api.tenant(), from.as_deref(), limit).await?;
    let seen = page.items.into_iter().filter(|queue| api.scope().allows_queue(&queue.name));
    let items = seen.map(Queue::from).collect();
    Ok(Json(QueuePage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

/// Read a queue: its limits, depth and oldest run
#[utoipa::path(
    get,
    path = "/api/v1/queues/{queue}",
    tag = "queues",
    params(("queue" = Name, Path, description = "The name of the queue")),
    responses(
        (status = 200, description = "The queue", body = Queue),
        (status = 404, description = "No job uses the queue and it has no limits", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_queue(State(api): Shared, QueuePath(queue): QueuePath, params: Params) -> Result<Json<Queue>> {
    params.finish()?;
    let page = api.queries().queues(api.tenant(), Some(&queue), 1).await?;
    let found = page.items.into_iter().next().filter(|found| found.name == queue);
    Ok(Json(found.ok_or(ApiError::NotFound("queue"))?.into()))
}

/// Set the limits of a queue
///
/// An absent field removes that limit. Claimed runs stay claimed.
#[utoipa::path(
    put,
    path = "/api/v1/queues/{queue}",
    tag = "queues",
    params(("queue" = Name, Path, description = "The name of the queue")),
    request_body(content = QueueRequest),
    responses((status = 200, description = "The queue with its new limits", body = Queue))
)]
pub(crate) async fn set_queue(
    State(api): Shared,
    QueuePath(queue): QueuePath,
    params: Params,
    body: JsonBody,
) -> Result<Json<Queue>> {
    params.finish()?;
    let limits = body.read::<QueueRequest>()?.read().map_err(ApiError::Invalid)?;
    api.commands.limit_queue(api.tenant(), &api.actor(), &queue, limits).await?;
    get_queue(State(api), QueuePath(queue), Params::none()).await
}

/// Claim runs of a queue
///
/// Returns runs that wait in the queue and are due, the highest priority first. A waiting run gains one priority step
/// per minute. For claims of 50 or more runs, and for concurrent claims, the order is not exact: a run of a job with
/// overlap `allow` that became due within the last 200ms may come after older runs. If no run is available, the request
/// waits up to `wait` and answers as soon as a run is available. After an empty answer, claim again. A claim lasts 30s;
/// a heartbeat every 10s extends it.
#[utoipa::path(
    post,
    path = "/api/v1/queues/{queue}/claim",
    tag = "queues",
    params(("queue" = Name, Path, description = "The name of the queue")),
    request_body(content = ClaimRequest),
    responses((status = 200, description = "The claimed runs, possibly none", body = ClaimAnswer))
)]
pub(crate) async fn claim_runs(
    State(api): Shared,
    QueuePath(queue): QueuePath,
    params: Params,
    carrier: Carrier,
    body: JsonBody,
) -> Result<Json<ClaimAnswer>> {
    params.finish()?;
    let wanted = body.read::<ClaimRequest>()?.read().map_err(ApiError::Invalid)?;
    // Check first: an answer with claimed runs can no longer be refused.
    api.in_flight.check()?;
    // If no connection is left for waiting requests, the worker still gets the runs that are due now.
    let long = carrier.begin_long(true);
    let wait = if long.is_ok() { wanted.wait } else { Duration::ZERO };
    let ended = async {
        match &long {
            Ok(long) => long.ended().await,
            Err(_) => pending().await,
        }
    };
    let work = WorkRequest { tenant: api.tenant(), queue, worker: wanted.worker, limit: wanted.limit, wait };
    let admitted = || {
        let api = api.clone();
        async move { api.is_admitted().await }.boxed()
    };
    let answer = api.commands.claim_work_until(work, ended, admitted).await?;
    match answer {
        Work::Claims(found) if found.claims.is_empty() && !wanted.wait.is_zero() => {
            long?;
            Ok(Json(ClaimAnswer { runs: Vec::new() }))
        }
        Work::Claims(found) => Ok(Json(ClaimAnswer { runs: found.claims.into_iter().map(ClaimedRun::from).collect() })),
        Work::NotAdmitted => match api.commands.tenants().get(api.tenant()).await?.state {
            TenantState::Active => Err(ApiError::Unauthenticated),
            TenantState::Suspended | TenantState::Deleting => Err(ApiError::TenantSuspended),
        },
        Work::TooManyWaiting => {
            Err(ApiError::Busy("too many workers wait at this node; retry, or use another node".to_owned()))
        }
    }
}

/// End the waiting claim requests of a worker
///
/// A worker that stops sends this request while its claim request waits. This node answers the claim request at
/// once: without runs, or with runs that it claimed just before. Other nodes do not learn of it; there, the request ends after its
/// `wait`.
#[utoipa::path(
    post,
    path = "/api/v1/queues/{queue}/leave",
    tag = "queues",
    params(("queue" = Name, Path, description = "The name of the queue")),
    request_body(content = LeaveRequest),
    responses((status = 200, description = "How many requests were ended", body = LeaveAnswer))
)]
pub(crate) async fn leave_queue(
    State(api): Shared,
    QueuePath(queue): QueuePath,
    params: Params,
    body: JsonBody,
) -> Result<Json<LeaveAnswer>> {
    params.finish()?;
    let worker = body.read::<LeaveRequest>()?.read().map_err(ApiError::Invalid)?;
    Ok(Json(LeaveAnswer { ended: api.commands.leave_queue(api.tenant(), queue, &worker) }))
}

/// Return a claimed run without working on it
///
/// The run waits in its queue again, and the claim does not count as an attempt.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{id}/release",
    tag = "queues",
    params(("id" = String, Path, format = Uuid, description = "The run's id")),
    request_body(content = BeatRequest),
    responses(
        (status = 200, description = "The run was returned", body = ReleaseAnswer),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The fence is not that of the current claim; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release_run(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<ReleaseAnswer>> {
    params.finish()?;
    let fence = body.read::<BeatRequest>()?.read().map_err(ApiError::Invalid)?;
    api.check_claim(id, fence).await?;
    if api.commands.release_claim(api.tenant(), id, fence).await? {
        Ok(Json(ReleaseAnswer { released: true }))
    } else {
        Err(ApiError::stale(fence))
    }
}

/// Extend the claim on a run
#[utoipa::path(
    post,
    path = "/api/v1/runs/{id}/heartbeat",
    tag = "queues",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    request_body(content = BeatRequest),
    responses(
        (status = 200, description = "The new end of the claim, or that the run was cancelled", body = BeatAnswer),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The fence is not that of the current claim; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn beat(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<BeatAnswer>> {
    params.finish()?;
    let fence = body.read::<BeatRequest>()?.read().map_err(ApiError::Invalid)?;
    api.check_claim(id, fence).await?;
    let beat = api.commands.beat(api.tenant(), id, fence).await?;
    BeatAnswer::of(beat).map(Json).ok_or_else(|| ApiError::stale(fence))
}

/// Append to the log of a claimed run
///
/// `GET` of the same path reads it. When the worker settles the run, the log is stored as the beginning of its output.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{id}/log",
    tag = "queues",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    request_body(content = LogRequest),
    responses(
        (status = 200, description = "The text was appended", body = LogAnswer),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The fence is not that of the current claim; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn add_log(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<LogAnswer>> {
    params.finish()?;
    let logged = body.read::<LogRequest>()?.read().map_err(ApiError::Invalid)?;
    api.check_claim(id, logged.fence).await?;
    if api.commands.log(api.tenant(), id, logged.fence, logged.part()).await? {
        Ok(Json(LogAnswer { logged: true }))
    } else {
        Err(ApiError::stale(logged.fence))
    }
}

/// Settle many runs
///
/// Each result is accepted or refused as if it were reported alone. All accepted results are written in one transaction.
#[utoipa::path(
    post,
    path = "/api/v1/queues/{queue}/settle",
    tag = "queues",
    params(("queue" = Name, Path, description = "The name of the queue")),
    request_body(content = SettleBatch),
    responses((status = 200, description = "The answer for each result, in the order of the request", body = SettleAnswers))
)]
pub(crate) async fn settle_runs(
    State(api): Shared,
    QueuePath(queue): QueuePath,
    params: Params,
    body: JsonBody,
) -> Result<Json<SettleAnswers>> {
    params.finish()?;
    // The queue in the path has no effect: each run is settled by its own fence, even if its job has another queue by now.
    drop(queue);
    let reports = body.read::<SettleBatch>()?.read().map_err(ApiError::Invalid)?;
    let named: Vec<_> = reports.iter().map(|(run, report)| (*run, report.fence)).collect();
    let runs: Vec<_> = named.iter().map(|(run, _)| *run).collect();
    let seen = api.claims_seen(&runs).await?;
    let allowed = reports.into_iter().zip(&seen).filter(|(_, seen)| **seen).map(|(report, _)| report).collect();
    let mut reported = api.commands.report_results(api.tenant(), allowed).await?.into_iter();
    let unseen = || Err(StoreError::NotFound("run"));
    let answers = seen.iter().map(|seen| if *seen { reported.next().unwrap_or_else(unseen) } else { unseen() });
    let result = |((run, fence), answer): (&(_, _), Result<Option<run::State>, StoreError>)| {
        let refused = |error: ApiError| SettleResult {
            run: *run,
            status: error.status().as_u16(),
            state: None,
            errors: error.errors_or_detail(),
        };
        match answer {
            Ok(Some(state)) => SettleResult { run: *run, status: 200, state: Some(state.into()), errors: Vec::new() },
            Ok(None) => refused(ApiError::stale(*fence)),
            Err(error) => refused(error.into()),
        }
    };
    Ok(Json(SettleAnswers { results: named.iter().zip(answers).map(result).collect() }))
}
