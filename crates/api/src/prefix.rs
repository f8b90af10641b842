//! Finds runs, flows, backfills and jobs by the beginning of their id. A whole id needs no query.

use std::fmt::Display;

use everytick_domain::{
    access::Permission,
    ids::{BackfillId, IdPrefix, JobId, RunId},
    invalid::Invalid,
};
use everytick_engine::types::{FlowFilter, JobRef, RunFilter, StoreError};

use crate::{
    auth::Call,
    error::{ApiError, Result},
};

/// How many candidates the answer to an ambiguous beginning lists.
const CANDIDATES_MAX: usize = 5;

pub(crate) async fn run(call: &Call, text: &str) -> Result<RunId> {
    match text.parse() {
        Ok(id) => Ok(id),
        // The candidates of an ambiguous beginning name jobs.
        Err(_) if !call.may(Permission::Read) => Err(ApiError::NotFound("run")),
        Err(_) => one("run", text, runs(call, read(text)?).await?),
    }
}

pub(crate) async fn flow(call: &Call, text: &str) -> Result<RunId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    // The candidates of an ambiguous beginning name jobs, which may be outside `job_prefix`.
    if call.scope().job_prefix.is_some() {
        return Err(ApiError::NotFound("flow"));
    }
    let filter = FlowFilter { ids: Some(read(text)?), ..FlowFilter::default() };
    let found = call.queries().flows(call.tenant(), &filter, None, CANDIDATES_MAX + 1).await?.items;
    let root = |flow: &str| if flow.is_empty() { "rerun".to_owned() } else { flow.to_owned() };
    let found = found.into_iter().map(|flow| {
        let (id, name) = (flow.id, root(flow.root.as_deref().unwrap_or_default()));
        (id, format!("{name}, {}, {}", flow.state.word(), flow.scheduled_at))
    });
    one("flow", text, found.collect())
}

/// A flow by its id or the id of one of its runs, or by the beginning of one of them.
pub(crate) async fn flow_or_its_run(call: &Call, text: &str) -> Result<RunId> {
    let found = match flow(call, text).await {
        Ok(id) => match call.queries().flow(call.tenant(), id).await {
            Err(StoreError::NotFound(_)) => None,
            found => return found.map(|flow| flow.id).map_err(ApiError::from),
        },
        Err(ApiError::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    let missing = ApiError::NotFound("flow");
    match run(call, text).await {
        Ok(run) => match call.queries().run(call.tenant(), run).await {
            Ok(run) => run.flow.or(found).ok_or(missing),
            Err(StoreError::NotFound(_)) => Err(missing),
            Err(error) => Err(error.into()),
        },
        Err(ApiError::NotFound(_)) => Err(missing),
        Err(error) => Err(error),
    }
}

pub(crate) async fn backfill(call: &Call, text: &str) -> Result<BackfillId> {
    match text.parse() {
        Ok(id) => Ok(id),
        Err(_) => {
            let found = call.queries().find_backfills(call.tenant(), read(text)?, CANDIDATES_MAX + 1).await?;
            one("backfill", text, found)
        }
    }
}

/// A job by its name, else by its id or the beginning of its id. A job may have a name that looks like the beginning of an id.
pub(crate) async fn job(call: &Call, text: &str) -> Result<JobRef> {
    if let Ok(id) = text.parse::<JobId>() {
        return Ok(JobRef::Id(id));
    }
    let named = JobRef::Name(text.to_owned());
    // With `job_prefix`, the text is only a name: a short id may match a job whose name does not begin with
    // `job_prefix`.
    if call.scope().job_prefix.is_some() {
        return Ok(named);
    }
    let Ok(ids) = text.parse::<IdPrefix>() else { return Ok(named) };
    match call.queries().job_id(call.tenant(), &named).await {
        Err(StoreError::NotFound(_)) => {}
        found => return found.map(JobRef::Id).map_err(ApiError::from),
    }
    let found = call.queries().find_jobs(call.tenant(), ids, CANDIDATES_MAX + 1).await?;
    if found.is_empty() { Ok(named) } else { one("job", text, found).map(JobRef::Id) }
}

/// The subjects under which the audit trail may have rows about one object. The user names a job, run, flow, backfill, queue or
/// calendar, by its name, its id or the beginning of its id.
pub(crate) async fn audit_subjects(call: &Call, text: &str) -> Result<Vec<String>> {
    if call.scope().job_prefix.is_some() {
        // Accept only a job, by its name or its whole id: names of other objects may begin with `job_prefix` too.
        let id = match job(call, text).await? {
            JobRef::Id(id) => id,
            named @ JobRef::Name(_) => call.queries().job_id(call.tenant(), &named).await?,
        };
        return Ok(vec![id.to_string()]);
    }
    let mut subjects =
        vec![text.to_owned(), format!("queue {text}"), format!("calendar/{text}"), format!("secret/{text}")];
    match call.queries().job_id(call.tenant(), &JobRef::Name(text.to_owned())).await {
        Ok(id) => subjects.push(id.to_string()),
        Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let Ok(ids) = text.parse::<IdPrefix>() else { return Ok(subjects) };
    if text.parse::<RunId>().is_ok() {
        subjects.push(format!("flow/{text}"));
        return Ok(subjects);
    }
    for (id, _) in runs(call, ids).await? {
        subjects.extend([id.to_string(), format!("flow/{id}")]);
    }
    let (jobs, backfills) = (
        call.queries().find_jobs(call.tenant(), ids, CANDIDATES_MAX).await?,
        call.queries().find_backfills(call.tenant(), ids, CANDIDATES_MAX).await?,
    );
    subjects.extend(jobs.iter().map(|(id, _)| id.to_string()).chain(backfills.iter().map(|(id, _)| id.to_string())));
    Ok(subjects)
}

/// The newest runs whose ids have this prefix, each with its job, state and time, which distinguish them for the user.
async fn runs(call: &Call, ids: IdPrefix) -> Result<Vec<(RunId, String)>> {
    let filter = RunFilter { ids: Some(ids), ..RunFilter::default() };
    let found = call.queries().runs(call.tenant(), &filter, None, CANDIDATES_MAX + 1).await?.items;
    let words = |job: &str, state: &str, at| format!("{job}, {state}, {at}");
    Ok(found.into_iter().map(|run| (run.id, words(&run.job_name, run.state.word(), run.scheduled_at))).collect())
}

fn read(text: &str) -> Result<IdPrefix> {
    text.parse().map_err(|message| ApiError::NotAName { field: "id", message })
}

fn one<T: Copy + Display>(what: &'static str, text: &str, found: Vec<(T, String)>) -> Result<T> {
    match found.as_slice() {
        [] => Err(ApiError::NotFound(what)),
        [(id, _)] => Ok(*id),
        several => {
            let message = format!("{text:?} is the beginning of the ids of several {what}s; write more of the id");
            let listed = several.iter().take(CANDIDATES_MAX).map(|(id, words)| format!("{id} ({words})"));
            let more = (several.len() > CANDIDATES_MAX).then(|| "and more".to_owned());
            let candidates = listed.chain(more).map(|line| Invalid::new("", line));
            Err(ApiError::Conflict([Invalid::new("id", message)].into_iter().chain(candidates).collect()))
        }
    }
}
