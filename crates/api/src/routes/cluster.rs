//! The nodes of the cluster and their partitions.

use axum::Json;

use super::{Shared, State};
use crate::{error::Result, params::Params, wire::cluster::ClusterView};

/// How many undecodable rows an answer lists.
const UNREADABLE_LISTED_MAX: usize = 20;

/// Show the nodes and the owners of the partitions
#[utoipa::path(
    get,
    path = "/api/v1/cluster",
    tag = "node",
    responses((status = 200, description = "The nodes and the partitions", body = ClusterView))
)]
pub(crate) async fn get_cluster(State(api): Shared, params: Params) -> Result<Json<ClusterView>> {
    params.finish()?;
    let cluster = api.queries().cluster().await?;
    let unreadable = api.queries().unreadable(UNREADABLE_LISTED_MAX).await?;
    let (gone, jobs) = (api.queries().gone_nodes().await?, api.queries().count_jobs().await?);
    Ok(Json(ClusterView::new(&cluster, gone, &jobs, unreadable)))
}
