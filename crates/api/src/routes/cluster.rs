//! The nodes that share the store.

use axum::{Json, extract::State};

use super::Shared;
use crate::{error::Result, params::Params, wire::cluster::ClusterView};

/// Who is there, and who holds which partition
#[utoipa::path(
    get,
    path = "/api/v1/cluster",
    tag = "node",
    responses((status = 200, description = "The nodes and the partitions", body = ClusterView))
)]
pub(crate) async fn get_cluster(State(api): Shared, params: Params) -> Result<Json<ClusterView>> {
    params.finish()?;
    Ok(Json(api.commands.store().cluster().await?.into()))
}
