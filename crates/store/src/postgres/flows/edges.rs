//! Reads the edges between jobs.

use everytick_domain::{
    flow::{Edges, FLOW_JOBS_MAX, When},
    ids::JobId,
};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::{Failed, rows};
use crate::Result;

/// The jobs connected with these, or those that follow them. One more than a flow may have shows that there are too
/// many.
pub(in super::super) async fn load(
    connection: &mut PgConnection,
    statement: &'static str,
    jobs: &[JobId],
    doing: &'static str,
) -> Result<Edges> {
    let asked = rows::job_ids(jobs.iter().copied());
    let limit = rows::limit((FLOW_JOBS_MAX + 1).saturating_mul(jobs.len().max(1)));
    let found: Vec<(Uuid, String, Option<Uuid>, Option<i16>)> =
        sqlx::query_as(statement).bind(asked).bind(limit).fetch_all(connection).await.failed(doing)?;
    let mut edges = Edges::default();
    for (job, name, parent, when) in found {
        let job = JobId::from_uuid(job);
        edges.add_job(job, name);
        if let (Some(parent), Some(when)) = (parent, when.and_then(|code| When::from_code(code.into()))) {
            edges.add(job, JobId::from_uuid(parent), when);
        }
    }
    Ok(edges)
}
