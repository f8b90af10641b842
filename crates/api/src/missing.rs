//! Adds names to 404 answers. A handler knows only that a job does not exist. This layer also knows the path: it adds the name
//! from the path, and the name of the job that the caller probably meant.

use std::sync::Arc;

use axum::{
    extract::{self, FromRequestParts, MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use everytick_domain::{access::Permission, wrong_input::nearest};
use everytick_engine::types::JobFilter;

use crate::{
    Api,
    auth::{Call, State},
    error::ApiError,
};

/// Maximum number of names that one read compares. The first read begins at the start of the list, the second at the first letters
/// of the wrong name. Both use the index, so a wrong name costs about as much as a page of jobs.
const NAMES_COMPARED_MAX: usize = 200;
/// How many letters of the wrong name the second read uses. It finds names with the same first letters, however long
/// the list is.
const LETTERS_KEPT: usize = 2;

/// Marks a 404 answer with the kind of object that does not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing(pub(crate) &'static str);

pub(crate) async fn name(extract::State(api): extract::State<Arc<Api>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let in_path = parts.extensions.get::<MatchedPath>().and_then(|route| in_path(route.as_str(), parts.uri.path()));
    let in_query = parts.uri.query().and_then(in_query);
    let call = State::from_request_parts(&mut parts, &api).await;
    let response = next.run(Request::from_parts(parts, body)).await;
    let Some(Missing(what)) = response.extensions().get::<Missing>().copied() else { return response };
    // The path may name another kind of object, for example a run whose job was deleted.
    let named = in_path.into_iter().chain(in_query).find(|(kind, _)| kind.strip_suffix('s') == Some(what));
    let (Some((_, name)), Ok(State(call))) = (named, call) else { return response };
    let message = match what {
        "job" => match meant(&call, &name).await {
            Some(meant) => format!("no job is named {name:?}; did you mean {meant:?}?"),
            None => format!("no job is named {name:?}; `everytick job list` lists the jobs"),
        },
        "calendar" => format!("no calendar is named {name:?}; `everytick calendar list` lists the calendars"),
        "secret" => format!("no secret is named {name:?}; `everytick secret list` lists the secrets"),
        "tenant" => format!("no tenant is named {name:?}; `everytick tenant list` lists the tenants"),
        "queue" => format!("no queue is named {name:?}; `everytick queue list` lists the queues"),
        _ => format!("there is no {what} {name}; ended runs are deleted after {} (--history)", api.history),
    };
    ApiError::NotFoundNamed(message).into_response()
}

/// The kind and the name in a path such as `/api/v1/jobs/nightly/runs`.
fn in_path(route: &str, path: &str) -> Option<(String, String)> {
    let mut pairs = route.split('/').zip(path.split('/'));
    let (kind, _) = pairs.by_ref().nth(3)?;
    let (placeholder, name) = pairs.next()?;
    let name = form_urlencoded::parse(format!("name={}", name.replace('+', "%2B")).as_bytes()).next()?.1.into_owned();
    placeholder.starts_with('{').then(|| (kind.to_owned(), name))
}

/// The filter of a list: `?job=nightly`.
fn in_query(query: &str) -> Option<(String, String)> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "job").map(|(_, job)| ("jobs".to_owned(), job.into_owned()))
}

/// The job that the caller probably meant, if the caller may read jobs.
async fn meant(call: &Call, name: &str) -> Option<String> {
    if !call.may(Permission::Read) {
        return None;
    }
    let begin: String = name.chars().take(LETTERS_KEPT).collect();
    let mut names = Vec::new();
    for after in [None, Some(begin.as_str())] {
        let page = call.queries().jobs(call.tenant(), &JobFilter::default(), after, NAMES_COMPARED_MAX).await.ok()?;
        let seen = page.items.into_iter().map(|record| record.job.spec.name.clone());
        names.extend(seen.filter(|name| call.scope().allows_job(name)));
    }
    nearest(name, names.iter().map(String::as_str)).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_read_from_the_path() {
        let named = |route, path| in_path(route, path).map(|(kind, name)| format!("{kind} {name}"));
        assert_eq!(named("/api/v1/jobs/{job}/runs", "/api/v1/jobs/a%20b+c/runs").unwrap(), "jobs a b+c");
        assert_eq!(named("/api/v1/runs/{id}", "/api/v1/runs/1").unwrap(), "runs 1");
        assert_eq!(named("/api/v1/jobs", "/api/v1/jobs"), None);
        assert_eq!(named("/healthz", "/healthz"), None);
        assert_eq!(in_query("limit=1&job=a%20b"), Some(("jobs".to_owned(), "a b".to_owned())));
        assert_eq!(in_query("limit=1"), None);
    }
}
