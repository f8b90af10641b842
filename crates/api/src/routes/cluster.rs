//! The nodes of the cluster and their partitions.

use axum::{Json, extract::State};

use super::Shared;
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
    let store = api.commands.store();
    let cluster = store.cluster().await?;
    let unreadable = store.list_unreadable(UNREADABLE_LISTED_MAX).await?;
    Ok(Json(ClusterView::new(&cluster, unreadable)))
}
