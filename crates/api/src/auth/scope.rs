//! Limits a caller to its scope: the jobs whose names begin with `job_prefix`, and some queues. A request for any other
//! job or queue is answered as if it did not exist.

use std::sync::Arc;

use axum::{
    extract::{self, FromRequestParts as _, MatchedPath, Path, Request},
    http::{Method, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use everytick_domain::{
    ids::{BackfillId, RunId},
    invalid::Invalid,
    job::JobSpec,
};
use everytick_engine::types::JobRef;

use super::{Call, State};
use crate::{
    Api,
    error::{ApiError, Result},
    params::job_ref,
};

/// Refuses a request for a resource outside the caller's scope. A caller with an unlimited scope costs no query.
pub(crate) async fn check(extract::State(api): extract::State<Arc<Api>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let checked = match State::from_request_parts(&mut parts, &api).await {
        Ok(State(call)) if call.is_limited() => in_scope(&call, &mut parts).await,
        _ => Ok(()),
    };
    match checked {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(error) => error.into_response(),
    }
}

async fn in_scope(call: &Call, parts: &mut Parts) -> Result<()> {
    let Some(route) = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned()) else {
        return Ok(());
    };
    let Some(route) = route.strip_prefix("/api/v1/") else { return Ok(()) };
    let params = Path::<Vec<(String, String)>>::from_request_parts(parts, &()).await;
    let params = params.map_or_else(|_| Vec::new(), |Path(params)| params);
    let named = params.first().map(|(_, value)| value.as_str()).unwrap_or_default();
    if route.starts_with("queues/{queue}") && !call.scope().allows_queue(named) {
        return Err(ApiError::NotFound("queue"));
    }
    if call.scope().job_prefix.is_none() {
        return Ok(());
    }
    let reads = parts.method == Method::GET;
    match route.split('/').next().unwrap_or_default() {
        "jobs" if route.starts_with("jobs/{job}") => sees_job(call, named).await,
        "runs" if route.starts_with("runs/{id}") => sees_run(call, named).await,
        "backfills" if route.starts_with("backfills/{id}") => sees_backfill(call, named).await,
        "flows" if route.starts_with("flows/{id}") => sees_flow(call, named).await,
        "runs" => sees_named_in_query(call, parts, "job").await,
        "audit" => sees_named_in_query(call, parts, "subject").await,
        "flows" => Err(only_jobs("a token with a job_prefix cannot list flows; list the runs of a job")),
        "calendars" | "queues" if !reads => {
            Err(only_jobs("a token with a job_prefix cannot change queues and calendars, which other jobs may use"))
        }
        "secrets" if !reads => {
            Err(only_jobs("a token with a job_prefix cannot change secrets, which other jobs may use"))
        }
        _ => Ok(()),
    }
}

fn only_jobs(message: &str) -> ApiError {
    ApiError::NotAllowed(Invalid::new("", message))
}

/// Accepts the exact name or the whole id of a job. A short id could match jobs outside `job_prefix`.
async fn sees_job(call: &Call, text: &str) -> Result<()> {
    let name = match job_ref(text) {
        JobRef::Name(name) => name,
        id @ JobRef::Id(_) => call.queries().job(call.tenant(), &id).await?.job.spec.name.clone(),
    };
    if call.scope().allows_job(&name) { Ok(()) } else { Err(ApiError::NotFound("job")) }
}

async fn sees_run(call: &Call, text: &str) -> Result<()> {
    let run: RunId = text.parse().map_err(|_| ApiError::NotFound("run"))?;
    let name = call.queries().run(call.tenant(), run).await?.job_name;
    if call.scope().allows_job(&name) { Ok(()) } else { Err(ApiError::NotFound("run")) }
}

async fn sees_backfill(call: &Call, text: &str) -> Result<()> {
    let id: BackfillId = text.parse().map_err(|_| ApiError::NotFound("backfill"))?;
    let name = call.queries().backfill(call.tenant(), id).await?.job_name;
    if call.scope().allows_job(&name) { Ok(()) } else { Err(ApiError::NotFound("backfill")) }
}

/// A flow shows all of its jobs, so each of them must be visible.
async fn sees_flow(call: &Call, text: &str) -> Result<()> {
    let id: RunId = text.parse().map_err(|_| ApiError::NotFound("flow"))?;
    let flow = call.queries().flow(call.tenant(), id).await?;
    let all = flow.nodes.iter().all(|node| call.scope().allows_job(&node.job_name));
    if all { Ok(()) } else { Err(ApiError::NotFound("flow")) }
}

async fn sees_named_in_query(call: &Call, parts: &Parts, parameter: &str) -> Result<()> {
    let query = parts.uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    match pairs.find(|(name, _)| name == parameter) {
        Some((_, named)) => sees_job(call, &named).await,
        None => {
            Err(ApiError::NotAllowed(Invalid::new(parameter, "a token with a job_prefix must name one of its jobs")))
        }
    }
}

impl Call {
    /// Checks that a definition names only what the caller sees.
    pub(crate) fn check_spec(&self, spec: &JobSpec) -> Result<()> {
        let outside = |field: &str, what: &str| {
            Err(ApiError::NotAllowed(Invalid::new(field, format!("{what:?} is outside the scope of the token"))))
        };
        let scope = self.scope();
        if !scope.allows_job(&spec.name) {
            return outside("name", &spec.name);
        }
        if let Some(parent) = spec.depends_on.iter().find(|parent| !scope.allows_job(&parent.job)) {
            return outside("depends_on", &parent.job);
        }
        match spec.target.queue() {
            Some(queue) if !scope.allows_queue(queue) => outside("target.queue.name", queue),
            _ => Ok(()),
        }
    }

    /// Checks the job in the answer to a repeated request. The job may have been renamed since the first request.
    pub(crate) fn check_seen(&self, job: &str) -> Result<()> {
        if self.scope().allows_job(job) { Ok(()) } else { Err(ApiError::NotFound("job")) }
    }

    /// The cursor before the first visible job, where a list begins.
    pub(crate) fn first_job(&self, after: Option<String>) -> Option<String> {
        let Some(prefix) = &self.scope().job_prefix else { return after };
        // Names have no character above '~', so no name lies between this text and the prefix.
        let mut before = prefix.clone();
        let last = before.pop().map(|last| char::from(u8::try_from(last).unwrap_or(b'.').saturating_sub(1)));
        before.extend(last);
        before.push('~');
        Some(after.filter(|after| *after > before).unwrap_or(before))
    }
}
