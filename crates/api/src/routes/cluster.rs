//! The nodes that share the store.

use axum::{Json, extract::State};

use super::Shared;
use crate::{error::Result, params::Params, wire::cluster::ClusterView};

/// Rows that cannot be decoded, as many as an answer lists.
const UNREADABLE_LISTED_MAX: usize = 20;

/// Who is there, and who holds which partition
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
