//! Why did it run, or not?

use axum::{Json, extract::State};
use everytick_domain::explain::explain;

use super::Shared;
use crate::{
    error::Result,
    params::{JobPath, Params},
    wire::{Name, Problem, explain::Explanation},
};

/// Why a job ran at an instant, or did not
///
/// Also of a job that was deleted, as long as it is remembered.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/explain",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("at" = Option<String>, Query, description = "The instant, RFC 3339; the last tick expected by now when left out", format = DateTime),
    ),
    responses(
        (status = 200, description = "What is known of that instant", body = Explanation),
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
    let (facts, at) = api.commands.store().load_facts(api.tenant(), &job, at, api.history).await?;
    Ok(Json(Explanation::new(&facts.job.spec.name, explain(&facts, at))))
}
