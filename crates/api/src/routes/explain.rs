//! Explains why a job ran or did not run at an instant.

use axum::Json;
use everytick_domain::explain::explain;

use super::{Shared, State};
use crate::{
    error::Result,
    params::{JobPath, Params},
    wire::{Name, Problem, explain::Explanation},
};

/// Explain why a job ran or did not run at an instant
///
/// Also works for a deleted job while its record is kept.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/explain",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("at" = Option<String>, Query, description = "The instant, RFC 3339; default: the last tick expected by now", format = DateTime),
    ),
    responses(
        (status = 200, description = "The explanation", body = Explanation),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn explain_job(
    State(api): Shared,
    JobPath(job): JobPath,
    mut params: Params,
) -> Result<Json<Explanation>> {
    let at = params.parsed("at");
    params.finish()?;
    let (facts, at) = api.queries().facts(api.tenant(), &job, at, api.history).await?;
    Ok(Json(Explanation::new(&facts.job.spec.name, explain(&facts, at))))
}
