//! Runs: list, read, watch, cancel, rerun, settle.

use std::convert::Infallible;

use axum::{
    Json,
    http::{HeaderValue, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use everytick_domain::{
    ids::{JobId, RunId},
    run::{CauseKind, State as RunState},
};
use everytick_engine::{
    VALID_CHECK_EVERY,
    types::{JobRef, RunFilter},
};
use futures::{Stream, StreamExt as _, stream};
use serde_json::json;
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::Interval,
};

use super::{Shared, State, created};
use crate::{
    auth::Call,
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{JobPath, Params, RunPath, job_ref},
    prefix,
    server::{Carrier, LongRequest},
    wire::{
        IdempotencyKey, Name, Problem,
        run::{Attempt, AttemptPage, Run, RunPage, SettleRequest},
    },
};

/// List runs and skipped ranges, newest first
#[utoipa::path(
    get,
    path = "/api/v1/runs",
    tag = "runs",
    params(
        ("job" = Option<Name>, Query, description = "Only runs of this job: its name or id. The id also works after the job was deleted"),
        ("from" = Option<String>, Query, format = DateTime, description = "Listed at this instant or later: the tick, or the time of the request. Runs of a backfill are listed one hour before its creation, not at `scheduled_at`"),
        ("to" = Option<String>, Query, format = DateTime, description = "Listed before this instant"),
        ("status" = Option<String>, Query, description = "States, separated by commas", pattern = "^(waiting|claimed|succeeded|failed|cancelled|skipped)(,(waiting|claimed|succeeded|failed|cancelled|skipped))*$", example = "failed,cancelled"),
        ("cause" = Option<String>, Query, description = "Causes, separated by commas", pattern = "^(tick|request|backfill|parent)(,(tick|request|backfill|parent))*$", example = "tick,backfill"),
        ("flow" = Option<String>, Query, description = "Only runs of this flow: its id, or a beginning of at least 8 digits that no other flow has"),
        ("label" = Option<Vec<String>>, Query, description = "`key` or `key=value`; the job of a run must match all of them"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses(
        (status = 200, description = "A page of runs", body = RunPage),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_runs(State(api): Shared, mut params: Params) -> Result<Json<RunPage>> {
    let named = params.one("job");
    let query = RunQuery::read(&api, params).await?;
    let job = match named {
        // An id also finds the runs of a deleted job, while they are kept.
        Some(named) => match job_ref(&named) {
            JobRef::Id(id) => Some(id),
            name @ JobRef::Name(_) => Some(api.queries().job_id(api.tenant(), &name).await?),
        },
        None => None,
    };
    list(&api, job, query).await
}

/// List a job's runs and skipped ranges, newest first
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/runs",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("from" = Option<String>, Query, format = DateTime, description = "Listed at this instant or later: the tick, or the time of the request. Runs of a backfill are listed one hour before its creation, not at `scheduled_at`"),
        ("to" = Option<String>, Query, format = DateTime, description = "Listed before this instant"),
        ("status" = Option<String>, Query, description = "States, separated by commas", pattern = "^(waiting|claimed|succeeded|failed|cancelled|skipped)(,(waiting|claimed|succeeded|failed|cancelled|skipped))*$", example = "failed,cancelled"),
        ("cause" = Option<String>, Query, description = "Causes, separated by commas", pattern = "^(tick|request|backfill|parent)(,(tick|request|backfill|parent))*$", example = "tick,backfill"),
        ("flow" = Option<String>, Query, description = "Only runs of this flow: its id, or a beginning of at least 8 digits that no other flow has"),
        ("label" = Option<Vec<String>>, Query, description = "`key` or `key=value`; the job of a run must match all of them"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses(
        (status = 200, description = "A page of runs", body = RunPage),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_job_runs(State(api): Shared, JobPath(job): JobPath, params: Params) -> Result<Json<RunPage>> {
    let query = RunQuery::read(&api, params).await?;
    let job = api.queries().job_id(api.tenant(), &job).await?;
    list(&api, Some(job), query).await
}

/// The checked parameters of a list of runs.
struct RunQuery {
    filter: RunFilter,
    limit: usize,
    before: Option<RunId>,
}

impl RunQuery {
    async fn read(api: &Call, mut params: Params) -> Result<Self> {
        let states: Vec<&str> = RunState::ALL.iter().map(|state| state.word()).collect();
        let causes: Vec<&str> = CauseKind::ALL.iter().map(|cause| cause.word()).collect();
        let (from, to) = params.period();
        let mut filter = RunFilter {
            from,
            to,
            states: params.words("status", "state", &states, RunState::from_word),
            causes: params.words("cause", "cause", &causes, CauseKind::from_word),
            labels: params.labels(),
            ..RunFilter::default()
        };
        let flow = params.one("flow");
        let (limit, before) = paging::read(&mut params, api.tenant());
        params.finish()?;
        if let Some(flow) = flow {
            filter.flow = Some(prefix::flow(api, &flow).await?);
        }
        Ok(Self { filter, limit, before })
    }
}

async fn list(api: &Call, job: Option<JobId>, query: RunQuery) -> Result<Json<RunPage>> {
    let RunQuery { filter, limit, before } = query;
    let filter = RunFilter { job, ..filter };
    let page = api.queries().runs(api.tenant(), &filter, before, limit).await?;
    let items = page.items.into_iter().map(Run::from).collect();
    let searched_to = page.next.map(RunId::time);
    Ok(Json(RunPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())), searched_to }))
}

/// Read a run
#[utoipa::path(
    get,
    path = "/api/v1/runs/{id}",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    responses(
        (status = 200, description = "The run", body = Run),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_run(State(api): Shared, RunPath(id): RunPath, params: Params) -> Result<Json<Run>> {
    params.finish()?;
    Ok(Json(api.queries().run(api.tenant(), id).await?.into()))
}

/// List the attempts of a run, the first attempt first
#[utoipa::path(
    get,
    path = "/api/v1/runs/{id}/attempts",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    responses(
        (status = 200, description = "The attempts", body = AttemptPage),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_attempts(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
) -> Result<Json<AttemptPage>> {
    params.finish()?;
    let items = api.queries().attempts(api.tenant(), id).await?.into_iter().map(Attempt::from).collect();
    Ok(Json(AttemptPage { items, next_cursor: None }))
}

/// Read the output of a run
///
/// While this node works on the run: server-sent events. `chunk` has `{"text"}`, from the start of the tail on;
/// `missed` has `{"chunks"}` when the client reads too slowly; `end` comes last and has `{"state"}`. If the caller's
/// credential ends, the events stop without `end`. While a worker has the run: its log so far. Otherwise: the stored
/// tail.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{id}/log",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    responses(
        (status = 200, description = "The tail as text, or events while the run is in progress", content((String = "text/plain"), (String = "text/event-stream"))),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_log(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    carrier: Carrier,
) -> Result<Response> {
    params.finish()?;
    let run = api.queries().run(api.tenant(), id).await?;
    if run.state.is_open()
        && let Some((tail, chunks)) = api.commands.live().watch(id)
    {
        let long = carrier.begin_long(false)?;
        return Ok(Sse::new(watch(api, id, tail, chunks, long)).keep_alive(KeepAlive::default()).into_response());
    }
    let log = if run.state.is_open() { api.queries().claim_log(api.tenant(), id).await? } else { None };
    let mut response = log.or(run.output).unwrap_or_default().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

enum Watching {
    /// Bytes not sent yet, the source of further ones, and when to check the caller's credential again.
    Live(Vec<u8>, Receiver<Vec<u8>>, Interval),
    Over,
}

fn watch(
    api: std::sync::Arc<Call>,
    run: RunId,
    tail: Vec<u8>,
    chunks: Receiver<Vec<u8>>,
    long: LongRequest,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let checks = tokio::time::interval(VALID_CHECK_EVERY);
    let events = stream::unfold((api, Watching::Live(tail, chunks, checks)), move |(api, watching)| async move {
        let Watching::Live(mut bytes, mut chunks, mut checks) = watching else { return None };
        loop {
            let text = whole_characters(&mut bytes);
            if !text.is_empty() {
                return Some((
                    Ok(event("chunk", json!({ "text": text }))),
                    (api, Watching::Live(bytes, chunks, checks)),
                ));
            }
            let received = tokio::select! {
                biased;
                _ = checks.tick() => match api.is_admitted().await {
                    // The store does not answer: the caller is checked again a moment later.
                    Ok(true) | Err(_) => continue,
                    Ok(false) => return None,
                },
                received = chunks.recv() => received,
            };
            match received {
                Ok(chunk) => bytes.extend(chunk),
                Err(RecvError::Lagged(missed)) => {
                    return Some((
                        Ok(event("missed", json!({ "chunks": missed }))),
                        (api, Watching::Live(Vec::new(), chunks, checks)),
                    ));
                }
                Err(RecvError::Closed) => {
                    let state = api.queries().run(api.tenant(), run).await.ok().map(|run| run.state.word());
                    return Some((Ok(event("end", json!({ "state": state }))), (api, Watching::Over)));
                }
            }
        }
    });
    // The long request counts until the stream is dropped.
    events.inspect(move |_| {
        let _ = &long;
    })
}

fn event(name: &str, data: serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

/// Takes the complete text out of `bytes` and leaves an incomplete character at the end, whose rest is still to come.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let begun = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        // After an invalid character elsewhere, check only the last 3 bytes.
        Err(_) => (1..=3.min(bytes.len()))
            .find(|back| {
                let end = &bytes[bytes.len() - back..];
                std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            })
            .unwrap_or(0),
        Ok(_) => 0,
    };
    let rest = bytes.split_off(bytes.len() - begun);
    String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned()
}

/// Cancel a waiting or claimed run
#[utoipa::path(
    post,
    path = "/api/v1/runs/{id}/cancel",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    responses(
        (status = 200, description = "The cancelled run", body = Run),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel_run(State(api): Shared, RunPath(id): RunPath, params: Params) -> Result<Json<Run>> {
    params.finish()?;
    Ok(Json(api.commands.cancel_run(api.tenant(), &api.actor(), id).await?.into()))
}

/// Rerun the job of a run that has ended
///
/// Creates a new run with the cause `request`; the old run does not change.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{id}/rerun",
    tag = "runs",
    params(
        ("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has"),
        ("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Identifies this request and its repeats for one day"),
    ),
    responses(
        (status = 201, description = "The new run, which is waiting or skipped", body = Run, headers(("Location" = String, description = "Path of the run"))),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has not ended, or too many runs of the job wait already", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rerun(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let run = api.commands.rerun(api.tenant(), &api.actor(), id, body.idempotency).await?;
    Ok(created(&format!("/api/v1/runs/{}", run.id), Run::from(run)))
}

/// Settle a run that was accepted with 202 or claimed from a queue
///
/// A repeated report gets the answer of the first.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{id}/settle",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id, or a beginning of at least 8 digits that no other run has")),
    request_body(content = SettleRequest),
    responses(
        (status = 200, description = "The run: ended, or waiting for its next attempt", body = Run),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The fence is not that of the current claim; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn settle_run(
    State(api): Shared,
    RunPath(id): RunPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<Run>> {
    params.finish()?;
    let report = body.read::<SettleRequest>()?.read().map_err(ApiError::Invalid)?;
    let fence = report.fence;
    api.check_claim(id, fence).await?;
    match api.commands.report_result(api.tenant(), id, report).await? {
        Some(run) => Ok(Json(run.into())),
        None => Err(ApiError::stale(fence)),
    }
}

#[cfg(test)]
mod tests {
    use super::whole_characters;

    #[test]
    fn an_incomplete_character_waits_for_its_rest() {
        let mut bytes = "aé".as_bytes()[..2].to_vec();
        assert_eq!(whole_characters(&mut bytes), "a");
        bytes.push("é".as_bytes()[1]);
        assert_eq!(whole_characters(&mut bytes), "é");
        assert!(bytes.is_empty());
        let mut broken = vec![0xff, b'x', 0xe2, 0x82];
        assert_eq!(whole_characters(&mut broken), "\u{fffd}x");
        assert_eq!(broken, [0xe2, 0x82]);
    }
}
