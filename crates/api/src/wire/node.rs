//! The answer of `/healthz`.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    #[schema(example = "ok")]
    pub(crate) status: &'static str,
    pub(crate) node: String,
    pub(crate) version: String,
}
