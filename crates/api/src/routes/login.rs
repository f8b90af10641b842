//! Pages on which a browser logs in and out. They need no credential.

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    auth::{
        cookie,
        login::{PATH, Visit, local_path},
    },
    body::FormBody,
    error::{ApiError, Result},
    params::Params,
    ui::{self, login::Form},
    wire::Problem,
};

const HOME: &str = "/";
const WRONG_TOKEN: &str = "The token is not valid: unknown, mistyped, expired or revoked.";

/// The form of a login.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the form in the OpenAPI document")]
pub(crate) struct LoginForm {
    /// An API token.
    token: String,
    /// A path on this server to which the login leads; default `/`.
    next: Option<String>,
}

/// The form of a logout.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the form in the OpenAPI document")]
pub(crate) struct LogoutForm {
    /// The CSRF token of the session, as in `GET /api/v1/me`.
    #[serde(rename = "everytick-csrf")]
    csrf: Option<String>,
}

/// The page to log in
///
/// For a browser that is logged in, it shows the user and a button to log out.
#[utoipa::path(
    get,
    path = "/auth/login",
    tag = "sessions",
    params(("next" = Option<String>, Query, description = "A path on this server to which the login leads. Other texts are ignored")),
    responses((status = 200, description = "An HTML page", body = String, content_type = "text/html"))
)]
pub(crate) async fn login_page(visit: Visit, mut params: Params) -> Result<Response> {
    let next = params.one("next");
    params.finish()?;
    if let Some(caller) = visit.caller().await?
        && let Some(session) = caller.own_session()
    {
        return Ok(ui::login::account(&caller, &session.csrf()));
    }
    let next = next.as_deref().and_then(local_path).unwrap_or(HOME);
    let is_open = visit.is_open().await?;
    Ok(Form { next, wrong: None, is_open, status: StatusCode::OK }.page())
}

/// Log in with a token
///
/// For the form of `GET /auth/login`. Begins a session and sets its cookie. The session has the rights of the token, and ends
/// with it. The header `Origin` must be that of this server.
#[utoipa::path(
    post,
    path = "/auth/login",
    tag = "sessions",
    request_body(content = LoginForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "Logged in. `Location` is the path to which the login leads", body = String, content_type = "text/html"),
        (status = 403, description = "The token is not valid, or the form is not of this server", content((String = "text/html"), (Problem = "application/problem+json"))),
        (status = 429, description = "Too many wrong tokens from this address", content((String = "text/html"), (Problem = "application/problem+json"))),
    )
)]
pub(crate) async fn log_in(visit: Visit, params: Params, form: FormBody) -> Result<Response> {
    params.finish()?;
    let next = form.field("next").and_then(local_path).unwrap_or(HOME);
    let token = form.field("token").unwrap_or_default();
    let refused = match visit.log_in_with_token(token).await {
        Ok(cookie) => return Ok(ui::see_other(next, Some(cookie))),
        // 401 would ask for a header that the form cannot send.
        Err(ApiError::Unauthenticated) => ApiError::Forbidden(WRONG_TOKEN.to_owned()),
        Err(error) => error,
    };
    let (wrong, wait) = match &refused {
        ApiError::Forbidden(why) => (why.as_str(), None),
        ApiError::TooFast(_, wait) => ("Too many wrong tokens from this address. Wait a moment.", Some(*wait)),
        _ => return Err(refused),
    };
    let is_open = visit.is_open().await?;
    let mut page = Form { next, wrong: Some(wrong), is_open, status: refused.status() }.page();
    let retry = wait.map(|wait| (header::RETRY_AFTER, wait.as_secs().saturating_add(1).into()));
    page.headers_mut().extend(retry);
    Ok(page)
}

/// Log out
///
/// For the form of `GET /auth/login`. Ends the session of the browser and removes its cookie. Programs use
/// `DELETE /api/v1/me`.
#[utoipa::path(
    post,
    path = "/auth/logout",
    tag = "sessions",
    request_body(content = LogoutForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303, description = "Logged out. `Location` is `/auth/login`", body = String, content_type = "text/html"))
)]
pub(crate) async fn log_out(visit: Visit, params: Params, form: FormBody) -> Result<Response> {
    params.finish()?;
    visit.log_out(form.field("everytick-csrf")).await?;
    Ok(ui::see_other(PATH, cookie::end(visit.secure)))
}

/// Style sheet of the pages
#[utoipa::path(
    get,
    path = "/auth/style.css",
    tag = "sessions",
    responses((status = 200, description = "A style sheet", body = String, content_type = "text/css"))
)]
pub(crate) async fn page_style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")], ui::STYLE)
}
