//! Explains why a job ran or did not run at an instant, and why a run is in its state.

use axum::Json;
use everytick_domain::{
    explain::{Question, ShownIn, explain, explain_run},
    instant::LocalZone,
};

use super::{Shared, State};
use crate::{
    error::Result,
    params::{JobPath, Params, RunPath},
    wire::{Name, Problem, explain::Explanation},
};

/// Explain why a job ran or did not run at an instant
///
/// Also works for a deleted job while its record is kept. Without `at`: the last tick expected by now, or the first
/// tick if none was expected yet; for a job without a schedule, its newest run.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/explain",
    tag = "jobs",
    params(
        ("job" = Name, Path, description = "Name or id"),
        ("at" = Option<String>, Query, description = "The instant, RFC 3339", format = DateTime),
        ("until" = Option<String>, Query, description = "With `at`: explain the first tick from `at` to before this instant", format = DateTime),
        ("utc" = Option<bool>, Query, description = "Whether the text shows its times in UTC instead of the job's zone"),
        ("zone" = Option<String>, Query, description = "The zone for the times in the text if the job has none, an IANA name", example = "Europe/Paris"),
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
    let question = Question { at: params.parsed("at"), until: params.parsed("until") };
    match (question.at, question.until) {
        (None, Some(_)) => params.refuse("until", "is allowed only with at; write the start of the period as at"),
        (Some(at), Some(until)) if until <= at => {
            params.refuse("until", format!("{until} is not after at ({at}); the period ends before until"));
        }
        _ => {}
    }
    let shown_in = shown_in(&mut params);
    params.finish()?;
    let facts = api.queries().facts(api.tenant(), &job, question, api.history).await?;
    Ok(Json(Explanation::new(&facts.job.spec.name, explain(&facts, question, shown_in))))
}

fn shown_in(params: &mut Params) -> ShownIn {
    let utc = params.flag("utc").unwrap_or(false);
    let shown_in = match params.one("zone") {
        None => ShownIn::JobZone,
        Some(name) => match LocalZone::named(&name) {
            Ok(zone) => LocalZone::constant_name(zone.name()).map_or(ShownIn::JobZone, ShownIn::JobZoneOr),
            Err(wrong) => {
                params.refuse("zone", wrong);
                ShownIn::JobZone
            }
        },
    };
    if utc { ShownIn::Utc } else { shown_in }
}

/// Explain why a run is in its state
///
/// States why the run waits (for a retry, a worker, another run, a node), how it ended, or why it was skipped.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{id}/explain",
    tag = "runs",
    params(
        ("id" = String, Path, format = Uuid),
        ("utc" = Option<bool>, Query, description = "Whether the text shows its times in UTC instead of the job's zone"),
        ("zone" = Option<String>, Query, description = "The zone for the times in the text if the job has none, an IANA name", example = "Europe/Paris"),
    ),
    responses(
        (status = 200, description = "The explanation", body = Explanation),
        (status = 404, description = "No such run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn explain_one_run(
    State(api): Shared,
    RunPath(run): RunPath,
    mut params: Params,
) -> Result<Json<Explanation>> {
    let shown_in = shown_in(&mut params);
    params.finish()?;
    let facts = api.queries().run_facts(api.tenant(), run).await?;
    Ok(Json(Explanation::new(&facts.job_name, explain_run(&facts, shown_in))))
}
