//! Calendars: named sets of dates that schedules exclude.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use everytick_domain::{
    calendar::{CalendarSpec, LeftOut, from_ics},
    ids::Version,
};
use everytick_engine::types::PutCalendar;

use super::{Shared, State, created, tagged};
use crate::{
    auth::Call,
    body::CalendarBody,
    error::{ApiError, Result},
    paging,
    params::{CalendarPath, Params},
    version::IfMatch,
    wire::{
        IfMatchTag, Name, Problem,
        calendar::{Calendar, CalendarDefinition, CalendarPage},
    },
};

/// List calendars, by name
#[utoipa::path(
    get,
    path = "/api/v1/calendars",
    tag = "calendars",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of calendars", body = CalendarPage))
)]
pub(crate) async fn list_calendars(State(api): Shared, mut params: Params) -> Result<Json<CalendarPage>> {
    let (limit, after) = paging::read::<String>(&mut params, api.tenant());
    params.finish()?;
    let page = api.queries().calendars(api.tenant(), after.as_deref(), limit).await?;
    let items = page.items.into_iter().map(Calendar::from).collect();
    Ok(Json(CalendarPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

/// Read a calendar
#[utoipa::path(
    get,
    path = "/api/v1/calendars/{name}",
    tag = "calendars",
    params(("name" = Name, Path, description = "The calendar's name")),
    responses(
        (status = 200, description = "The calendar", body = Calendar, headers(("ETag" = String, description = "The calendar's version in quotes"))),
        (status = 404, description = "No such calendar", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_calendar(
    State(api): Shared,
    CalendarPath(name): CalendarPath,
    params: Params,
) -> Result<Response> {
    params.finish()?;
    let record = api.queries().calendar(api.tenant(), &name).await?;
    Ok(tagged(record.version, Json(Calendar::from(record)).into_response()))
}

/// Create or replace a calendar
///
/// The body is JSON or an iCalendar file. From a file, all-day events are imported, single or repeated yearly or monthly;
/// `left_out` of the answer lists the others. A file without an event that can be imported is refused. The old version applies to
/// ticks up to `effective_at`, whenever they are recorded; the new version applies to later ticks.
#[utoipa::path(
    put,
    path = "/api/v1/calendars/{name}",
    tag = "calendars",
    params(
        ("name" = Name, Path, description = "The calendar's name"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
        ("timezone" = Option<String>, Query, description = "With an iCalendar file: the time zone of its dates; overrides its X-WR-TIMEZONE"),
    ),
    request_body(content((CalendarDefinition = "application/json"), (String = "text/calendar"))),
    responses(
        (status = 200, description = "The calendar, which applies after `effective_at`", body = Calendar, headers(("ETag" = String, description = "The calendar's version in quotes"))),
        (status = 201, description = "The calendar was created", body = Calendar, headers(("ETag" = String, description = "The calendar's version in quotes"), ("Location" = String, description = "Path of the calendar"))),
        (status = 412, description = "`If-Match` does not contain the version of the calendar", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn put_calendar(
    State(api): Shared,
    CalendarPath(name): CalendarPath,
    if_match: IfMatch,
    mut params: Params,
    body: CalendarBody,
) -> Result<Response> {
    let zone = params.one("timezone");
    params.finish()?;
    let (spec, left_out) = read(&api, body, zone.as_deref()).await?;
    let if_match = expected(&api, &name, &if_match).await?;
    let location = format!("/api/v1/calendars/{name}");
    let put = api.commands.put_calendar(api.tenant(), &api.actor(), PutCalendar { name, spec, if_match }).await?;
    let (version, made) = (put.calendar.version, put.made);
    let calendar = Calendar::put(put, left_out);
    let response = if made { created(&location, calendar) } else { Json(calendar).into_response() };
    Ok(tagged(version, response))
}

/// The calendar in the body. For an iCalendar file, also the events that were not imported.
async fn read(api: &Call, body: CalendarBody, zone: Option<&str>) -> Result<(CalendarSpec, Option<Vec<LeftOut>>)> {
    match body {
        CalendarBody::Ics(text) => {
            let imported = from_ics(&text, zone, api.queries().now().await?).map_err(ApiError::Invalid)?;
            Ok((imported.spec, Some(imported.left_out)))
        }
        CalendarBody::Json(_) if zone.is_some() => Err(ApiError::malformed(
            "timezone",
            "is allowed only with an iCalendar file; with JSON, write it in the body",
        )),
        CalendarBody::Json(body) => Ok((body.read::<CalendarDefinition>()?.read().map_err(ApiError::Invalid)?, None)),
    }
}

/// Delete a calendar
///
/// A calendar that a job uses cannot be deleted.
#[utoipa::path(
    delete,
    path = "/api/v1/calendars/{name}",
    tag = "calendars",
    params(
        ("name" = Name, Path, description = "The calendar's name"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    responses(
        (status = 200, description = "The deleted calendar", body = Calendar),
        (status = 404, description = "No such calendar", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Jobs use it; the error names them", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the calendar", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete_calendar(
    State(api): Shared,
    CalendarPath(name): CalendarPath,
    if_match: IfMatch,
    params: Params,
) -> Result<Json<Calendar>> {
    params.finish()?;
    let if_match = expected(&api, &name, &if_match).await?;
    let deleted = api.commands.delete_calendar(api.tenant(), &api.actor(), &name, if_match).await?;
    Ok(Json(deleted.into()))
}

/// The version that `If-Match` requires. Reads the calendar only if `If-Match` has several tags, or a tag that this
/// server never sent.
async fn expected(api: &Call, name: &str, if_match: &IfMatch) -> Result<Option<Version>> {
    Ok(match if_match {
        IfMatch::Any => None,
        IfMatch::OneOf(tags) => match tags.as_slice() {
            [Some(version)] => Some(*version),
            _ => {
                let record = api.queries().calendar(api.tenant(), name).await?;
                if_match.check(record.version)?;
                Some(record.version)
            }
        },
    })
}
