//! Jobs: create, list, read, replace, patch, delete, pause, resume, trigger; and the next ticks.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use everytick_domain::{
    edit::Change,
    explain::no_ticks,
    invalid::Invalid,
    target::TargetKind,
    time::{DbTime, Span},
};
use everytick_engine::{
    commands::Trigger,
    types::{EditJob, Edited, JobFilter, JobRecord, JobRef, StoreError},
};
use everytick_targets::listed;

use super::{Shared, State, created, tagged};
use crate::{
    auth::Call,
    body::{JsonBody, read_object},
    elsewhere::Elsewhere,
    error::{ApiError, Result},
    paging,
    params::{JobPath, Params},
    version::IfMatch,
    warnings,
    wire::{
        FieldError, IdempotencyKey, IfMatchTag, Name, Problem,
        job::{DeletedJob, Job, JobDefinition, JobPage, JobPatch, PauseRequest, TriggerRequest},
        merge::merge,
        run::Run,
        schedule::{PREVIEW_DEFAULT, PREVIEW_MAX, Preview},
        target::Kind,
    },
};

/// How often an edit is repeated when other edits of the same job intervene.
const RACES_MAX: usize = 8;

/// Create a job
///
/// With an `Idempotency-Key`, a repeat creates no second job. It gets the status of the first request and the job's current state.
#[utoipa::path(
    post,
    path = "/api/v1/jobs",
    tag = "jobs",
    params(("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Identifies this request and its repeats for one day")),
    request_body(content = JobDefinition),
    responses(
        (status = 201, description = "The job was created", body = Job, headers(("ETag" = String, description = "The job's version in quotes"), ("Location" = String, description = "Path of the job"))),
        (status = 409, description = "The name is taken, or the quota is reached", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_job(State(api): Shared, body: JsonBody) -> Result<Response> {
    let definition: JobDefinition = body.read()?;
    let elsewhere = Elsewhere::of(&api, &definition).await;
    let spec = definition.read(None, api.allowed(&elsewhere)?).map_err(ApiError::Invalid)?;
    api.check_spec(&spec)?;
    let warnings = warnings::of(&api, &spec, None).await;
    let made = api.commands.create_jobs(api.tenant(), &api.actor(), vec![spec], body.idempotency.as_ref()).await?;
    let made = made.into_iter().next().ok_or(ApiError::Internal)?.map_err(unless_deleted)?;
    let location = format!("/api/v1/jobs/{}", made.job.id);
    if made.replayed {
        let record = api.queries().job(api.tenant(), &JobRef::Id(made.job.id)).await.map_err(unless_deleted)?;
        api.check_seen(&record.job.spec.name)?;
        return Ok(tagged(record.job.version, created(&location, Job::from(&record).with_warnings(warnings))));
    }
    Ok(tagged(made.job.version, created(&location, Job::from(&made).with_warnings(warnings))))
}

/// If a repeat finds no job, the job that the first request created has been deleted since.
fn unless_deleted(error: StoreError) -> ApiError {
    match error {
        StoreError::NotFound(_) => ApiError::conflict(
            "Idempotency-Key",
            "the job that was created with this key has been deleted; use a new key to create another",
        ),
        error => error.into(),
    }
}

/// List jobs, by name
///
/// A page ends at `limit` jobs or after 4 MiB of definitions. Only `next_cursor` shows whether there are more.
#[utoipa::path(
    get,
    path = "/api/v1/jobs",
    tag = "jobs",
    params(
        ("enabled" = Option<bool>, Query, description = "`true`: only enabled jobs; `false`: only disabled jobs"),
        ("paused" = Option<bool>, Query, description = "`true`: only paused jobs; `false`: only jobs that are not paused"),
        ("target" = Option<Kind>, Query, description = "Only jobs with this kind of target"),
        ("label" = Option<Vec<String>>, Query, description = "`key` or `key=value`; a job must match all of them"),
        ("q" = Option<String>, Query, description = "Part of the name or the description, ignoring case"),
        ("include" = Option<String>, Query, description = "`payload`: include payloads over 4 KiB, which are otherwise `null` with `payload_bytes`", pattern = "^payload$"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of jobs", body = JobPage))
)]
pub(crate) async fn list_jobs(State(api): Shared, mut params: Params) -> Result<Json<JobPage>> {
    let filter = JobFilter {
        enabled: params.flag("enabled"),
        paused: params.flag("paused"),
        target: params.one("target"),
        labels: params.labels(),
        q: params.one("q").filter(|q| !q.is_empty()),
    };
    if let Some(other) = filter.target.as_deref().filter(|kind| TargetKind::from_word(kind).is_none()) {
        let kinds = listed(|kind| format!("{kind:?}"));
        params.refuse("target", format!("{other:?} is not a kind of target; write one of {kinds}"));
    }
    let include = params.one("include");
    if let Some(other) = include.as_deref().filter(|what| *what != "payload") {
        params.refuse("include", format!("{other:?} cannot be included; write \"payload\""));
    }
    let (limit, after) = paging::read::<String>(&mut params, api.tenant());
    params.finish()?;
    let after = api.first_job(after);
    let mut page = api.queries().jobs(api.tenant(), &filter, after.as_deref(), limit).await?;
    if page.items.last().is_some_and(|last| !api.scope().allows_job(&last.job.spec.name)) {
        page.items.retain(|record| api.scope().allows_job(&record.job.spec.name));
        page.next = None;
    }
    let items = page.items.iter().map(|record| Job::listed(record, include.is_some())).collect();
    Ok(Json(JobPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

/// Read a job
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(("job" = Name, Path, description = "Name or id")),
    responses(
        (status = 200, description = "The job", body = Job, headers(("ETag" = String, description = "The job's version in quotes"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_job(State(api): Shared, JobPath(job): JobPath, params: Params) -> Result<Response> {
    params.finish()?;
    let record = api.queries().job(api.tenant(), &job).await?;
    Ok(tagged(record.job.version, Json(Job::whole(&record)).into_response()))
}

/// Replace a job's definition
///
/// An absent field gets its default. A client can send an answer back: fields that only answers have are ignored, and `********`
/// keeps the stored credential.
#[utoipa::path(
    put,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    request_body(content = JobDefinition),
    responses(
        (status = 200, description = "The job, which applies after `effective_at`", body = Job, headers(("ETag" = String, description = "The job's version in quotes"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The name is taken, or concurrent edits of the job kept intervening", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn replace_job(
    State(api): Shared,
    JobPath(job): JobPath,
    if_match: IfMatch,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    // Parse once before the lookup, so that a bad body is reported even if the job does not exist.
    body.read::<JobDefinition>()?;
    replace(&api, job, if_match, |_| body.read()).await
}

/// Change parts of a job's definition
///
/// A JSON merge patch (RFC 7396) on the job's answer: an absent field stays unchanged, `null` restores the default.
#[utoipa::path(
    patch,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    request_body(content((JobPatch = "application/merge-patch+json"), (JobPatch = "application/json"))),
    responses(
        (status = 200, description = "The job, which applies after `effective_at`", body = Job, headers(("ETag" = String, description = "The job's version in quotes"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The name is taken, or concurrent edits of the job kept intervening", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn patch_job(
    State(api): Shared,
    JobPath(job): JobPath,
    if_match: IfMatch,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let patch = body.read_raw()?;
    if !patch.get().starts_with('{') {
        return Err(ApiError::Invalid(vec![Invalid::new(
            "",
            "the body is not a JSON object; send the fields to change, such as {\"priority\": 7}",
        )]));
    }
    replace(&api, job, if_match, |current| {
        let text = serde_json::value::to_raw_value(current).and_then(|text| merge(&text, &patch)).map_err(|error| {
            tracing::error!(%error, "could not merge a patch");
            ApiError::Internal
        })?;
        read_object(text.get().as_bytes())
    })
    .await
}

/// Reads the job, derives its new definition, and writes it only if the job's version is unchanged.
async fn replace(
    api: &Call,
    job: JobRef,
    if_match: IfMatch,
    define: impl Fn(&Job) -> Result<JobDefinition>,
) -> Result<Response> {
    for _ in 0..RACES_MAX {
        let record = api.queries().job(api.tenant(), &job).await?;
        let definition = define(&Job::from(&record))?;
        let elsewhere = Elsewhere::of(api, &definition).await;
        let spec = definition.read(Some(&record.job), api.allowed(&elsewhere)?).map_err(ApiError::Invalid)?;
        api.check_spec(&spec)?;
        if_match.check(record.job.version)?;
        let warnings = warnings::of(api, &spec, Some(&record.job.spec)).await;
        let edit = EditJob {
            job: JobRef::Id(record.job.id),
            change: Change::Replace(Box::new(spec)),
            if_match: Some(record.job.version),
            cancel: false,
        };
        match api.commands.edit_job(api.tenant(), &api.actor(), edit).await {
            Ok(edited) => return Ok(edited_job(api, &edited, Some(record), warnings).await),
            // Another edit came first: read its result, and check If-Match again.
            Err(StoreError::VersionMismatch { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::conflict("", "concurrent edits of the job kept intervening; retry"))
}

/// Delete a job
///
/// After the answer no tick gets a run. Waiting and claimed runs continue, unless `cancel=true`.
#[utoipa::path(
    delete,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
        ("cancel" = Option<bool>, Query, description = "Also cancel the waiting and claimed runs"),
    ),
    responses(
        (status = 200, description = "The job was deleted", body = DeletedJob),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete_job(
    State(api): Shared,
    JobPath(job): JobPath,
    if_match: IfMatch,
    mut params: Params,
) -> Result<Json<DeletedJob>> {
    let cancel = params.flag("cancel").unwrap_or(false);
    params.finish()?;
    let edited = change(&api, job, &if_match, Change::Delete, cancel).await?;
    Ok(Json(DeletedJob {
        id: edited.job.id,
        name: edited.job.spec.name.clone(),
        effective_at: edited.effective_at,
        cancelled: edited.cancelled,
        cancelling: cancel && edited.backlog,
    }))
}

/// Pause a job
///
/// After the answer no tick gets a run until the job is resumed. The ticks in between are not caught up.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/pause",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    request_body(content = Option<PauseRequest>),
    responses(
        (status = 200, description = "The paused job", body = Job, headers(("ETag" = String, description = "The job's version in quotes"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause_job(
    State(api): Shared,
    JobPath(job): JobPath,
    if_match: IfMatch,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let request: PauseRequest = body.read_or_default()?;
    request.check().map_err(ApiError::Invalid)?;
    let cancel = request.cancel.unwrap_or(false);
    let edited = change(&api, job, &if_match, Change::Pause { note: request.note }, cancel).await?;
    Ok(edited_job(&api, &edited, None, Vec::new()).await)
}

/// Resume a paused job
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/resume",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    responses(
        (status = 200, description = "The resumed job", body = Job, headers(("ETag" = String, description = "The job's version in quotes"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume_job(
    State(api): Shared,
    JobPath(job): JobPath,
    if_match: IfMatch,
    params: Params,
) -> Result<Response> {
    params.finish()?;
    let edited = change(&api, job, &if_match, Change::Resume, false).await?;
    Ok(edited_job(&api, &edited, None, Vec::new()).await)
}

/// Edits without reading the job first, unless `If-Match` has several tags, or a tag that this server never sent.
async fn change(api: &Call, job: JobRef, if_match: &IfMatch, change: Change, cancel: bool) -> Result<Edited> {
    let if_match = match if_match {
        IfMatch::Any => None,
        IfMatch::OneOf(tags) => match tags.as_slice() {
            [Some(version)] => Some(*version),
            _ => {
                let record = api.queries().job(api.tenant(), &job).await?;
                if_match.check(record.job.version)?;
                Some(record.job.version)
            }
        },
    };
    Ok(api.commands.edit_job(api.tenant(), &api.actor(), EditJob { job, change, if_match, cancel }).await?)
}

/// The answer to a committed edit. `before` is the job as it was read for the edit. The job is read again only if it was not
/// read before, or if runs are cancelled or moved in the background, because the answer shows that progress. If the read
/// fails, only the last run and the backlog are missing in the answer.
async fn edited_job(api: &Call, edited: &Edited, before: Option<JobRecord>, warnings: Vec<FieldError>) -> Response {
    let read = match before.filter(|before| !edited.backlog && before.backlog.is_none()) {
        Some(before) => Some(before),
        None => api.queries().job(api.tenant(), &JobRef::Id(edited.job.id)).await.ok(),
    };
    tagged(edited.job.version, Json(Job::edited(edited, read.as_ref()).with_warnings(warnings)).into_response())
}

/// Trigger a job
///
/// Records a run with the cause `request`. If the job's overlap policy forbids it, the run is recorded as skipped, unless `force`.
/// The status is 201 in both cases. A repeat with the same `Idempotency-Key` returns the same run.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/trigger",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("Idempotency-Key" = Option<IdempotencyKey>, Header, description = "Identifies this request and its repeats for one day"),
    ),
    request_body(content = Option<TriggerRequest>),
    responses(
        (status = 201, description = "The run, which is waiting or skipped", body = Run, headers(("Location" = String, description = "Path of the run"))),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Too many runs of the job wait already", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn trigger_job(
    State(api): Shared,
    JobPath(job): JobPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let request: TriggerRequest = body.read_or_default()?;
    let payload = request.payload().map_err(ApiError::Invalid)?;
    let trigger = Trigger { job, payload, force: request.force.unwrap_or(false), idempotency: body.idempotency };
    let run = api.commands.trigger(api.tenant(), &api.actor(), trigger).await?;
    api.check_seen(&run.job_name)?;
    Ok(created(&format!("/api/v1/runs/{}", run.id), Run::from(run)))
}

/// Show the next ticks of a job
///
/// The list is empty for a job that is paused, disabled or without a schedule; `no_ticks` then has the reason. Ticks
/// that a calendar excludes are listed with `excluded_by`: they will be skips. With `from`, the ticks of the present
/// definition from that instant on.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/next",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("count" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("from" = Option<String>, Query, description = "Shows the ticks from this instant on, RFC 3339; default now", format = DateTime),
    ),
    responses(
        (status = 200, description = "The description of the schedule and its next ticks", body = Preview),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn next_ticks(State(api): Shared, JobPath(job): JobPath, mut params: Params) -> Result<Json<Preview>> {
    let count = params.number("count", 1..=PREVIEW_MAX, PREVIEW_DEFAULT);
    let from: Option<DbTime> = params.parsed("from");
    params.finish()?;
    let record = api.queries().job(api.tenant(), &job).await?;
    // Without `from`, start now, but not before the cursor. The first tick of a job is after its creation.
    let from = from.or(record.cursor.map(|cursor| record.now.max(cursor)));
    let from = from.map(|from| from.max(record.job.created_at.plus(Span::millis(1))));
    let mut preview: Preview = match (record.job.ticking(), from) {
        (Some(schedule), Some(from)) => schedule.preview(from, count).into(),
        _ => Preview::without_ticks(record.job.schedule.as_ref()),
    };
    if preview.ticks.is_empty() {
        preview.no_ticks = no_ticks(&record.job, &[], record.now);
    }
    Ok(Json(preview))
}
