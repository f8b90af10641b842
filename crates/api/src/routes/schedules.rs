//! Preview of a schedule that is not stored.

use axum::Json;
use everytick_domain::calendar::Exclusion;

use super::{Shared, State};
use crate::{
    body::JsonBody,
    error::{ApiError, Result},
    params::Params,
    wire::schedule::{Preview, PreviewRequest},
};

/// Preview a schedule
#[utoipa::path(
    post,
    path = "/api/v1/schedules/preview",
    tag = "schedules",
    request_body(content = PreviewRequest),
    responses((status = 200, description = "The description of the schedule and its next ticks", body = Preview))
)]
pub(crate) async fn preview_schedule(State(api): Shared, params: Params, body: JsonBody) -> Result<Json<Preview>> {
    params.finish()?;
    let request = body.read::<PreviewRequest>()?.read().map_err(ApiError::Invalid)?;
    let from = match request.from {
        Some(from) => from,
        None => api.queries().now().await?,
    };
    let known = match request.exclude.as_slice() {
        [] => Vec::new(),
        names => api.queries().load_calendars(api.tenant(), names).await?,
    };
    let exclusion = Exclusion::named(&request.exclude, &known).map_err(ApiError::Invalid)?;
    Ok(Json(request.schedule.excluding(exclusion).preview(from, request.count).into()))
}
