//! The API reference for people: plain HTML from the OpenAPI document. It needs no script, so it works offline and under a
//! strict content security policy. (The usual viewers load a script from a CDN.)

use std::{fmt::Write, sync::LazyLock};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use crate::{auth::login::Visit, document::openapi, error::Result, ui::see_other};

static JSON: LazyLock<String> = LazyLock::new(|| openapi().to_json().unwrap_or_default());
static PAGE: LazyLock<String> = LazyLock::new(|| page_of(&serde_json::from_str(&JSON).unwrap_or_default()));

const CSP: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The OpenAPI document as JSON
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "docs",
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Map<String, Value>, content_type = "application/json"))
)]
pub(crate) async fn openapi_json() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], JSON.as_str())
}

/// The start page
///
/// Redirects to the API reference, which is the only page of this server. If requests need a credential, redirects a browser
/// that is not logged in to the login.
#[utoipa::path(
    get,
    path = "/",
    tag = "docs",
    responses(
        (status = 303, description = "`Location` is the login", body = String, content_type = "text/html"),
        (status = 307, description = "`Location` is `/docs`", body = String, content_type = "text/html"),
    )
)]
pub(crate) async fn home(visit: Visit, headers: HeaderMap) -> Result<Response> {
    let is_browser =
        headers.get_all(header::ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains("text/html")));
    if is_browser && !visit.is_open().await? && visit.caller().await?.is_none() {
        return Ok(see_other("/auth/login?next=/", None));
    }
    let headers = [(header::LOCATION, "/docs"), (header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let link = "<!doctype html><title>Everytick</title><a href=\"/docs\">API reference</a>";
    Ok((StatusCode::TEMPORARY_REDIRECT, headers, link).into_response())
}

/// The API reference as a page
#[utoipa::path(
    get,
    path = "/docs",
    tag = "docs",
    responses((status = 200, description = "An HTML page", body = String, content_type = "text/html"))
)]
pub(crate) async fn page() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, CSP)], PAGE.as_str())
}

/// Style sheet of the API reference
#[utoipa::path(
    get,
    path = "/docs/style.css",
    tag = "docs",
    responses((status = 200, description = "A style sheet", body = String, content_type = "text/css"))
)]
pub(crate) async fn style() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")],
        include_str!("docs.css"),
    )
}

fn page_of(document: &Value) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Everytick API</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"stylesheet\" href=\"/docs/style.css\"></head><body>",
    );
    let info = &document["info"];
    put(&mut html, format_args!("<header><h1>Everytick API <small>{}</small></h1>", escaped(&info["version"])));
    for paragraph in text(&info["description"]).split("\n\n") {
        put(&mut html, format_args!("<p>{}</p>", prose(paragraph)));
    }
    html.push_str(
        "<p><a href=\"/openapi.json\">openapi.json</a> is the same document for programs. \
         <a href=\"/auth/login\">Log in</a> to send requests from this browser.</p></header><nav><ul>",
    );
    let operations = operations(document);
    for (id, method, path, _) in &operations {
        put(
            &mut html,
            format_args!(
                "<li><a href=\"#{id}\"><b class=\"{method}\">{method}</b> <code>{}</code></a></li>",
                escape(path)
            ),
        );
    }
    html.push_str("</ul></nav><main>");
    for (id, method, path, operation) in &operations {
        put(
            &mut html,
            format_args!(
                "<section id=\"{id}\"><h2><b class=\"{method}\">{method}</b> <code>{}</code></h2><h3>{}</h3>",
                escape(path),
                prose(text(&operation["summary"]))
            ),
        );
        for paragraph in text(&operation["description"]).split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            put(&mut html, format_args!("<p>{}</p>", prose(paragraph)));
        }
        parameters(&mut html, operation);
        if let Some(content) = operation["requestBody"]["content"].as_object() {
            html.push_str("<h4>Body</h4><ul>");
            for (kind, media) in content {
                put(&mut html, format_args!("<li><code>{}</code>: {}</li>", escape(kind), kind_of(&media["schema"])));
            }
            html.push_str("</ul>");
        }
        responses(&mut html, operation);
        html.push_str("</section>");
    }
    html.push_str("<h2>Objects</h2>");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        object(&mut html, name, schema);
    }
    html.push_str("</main></body></html>");
    html
}

type Listed<'a> = (String, String, &'a str, &'a Value);

fn operations(document: &Value) -> Vec<Listed<'_>> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let each = paths.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().filter(|(_, operation)| operation["responses"].is_object()).map(
            move |(method, operation)| {
                (escaped(&operation["operationId"]), method.to_uppercase(), path.as_str(), operation)
            },
        )
    });
    each.collect()
}

fn parameters(html: &mut String, operation: &Value) {
    let Some(parameters) = operation["parameters"].as_array() else { return };
    html.push_str("<h4>Parameters</h4><table><tr><th>name<th>in<th>type<th></tr>");
    for parameter in parameters {
        put(
            html,
            format_args!(
                "<tr><td><code>{}</code><td>{}<td>{}<td>{}</tr>",
                escaped(&parameter["name"]),
                escaped(&parameter["in"]),
                kind_of(&parameter["schema"]),
                prose(text(&parameter["description"]))
            ),
        );
    }
    html.push_str("</table>");
}

fn responses(html: &mut String, operation: &Value) {
    html.push_str("<h4>Answers</h4><table>");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let mut bodies = Vec::new();
        for (kind, media) in response["content"].as_object().into_iter().flatten() {
            bodies.push(format!("<code>{}</code>: {}", escape(kind), kind_of(&media["schema"])));
        }
        put(
            html,
            format_args!(
                "<tr><td><code>{}</code><td>{}<td>{}</tr>",
                escape(status),
                prose(text(&response["description"])),
                bodies.join("<br>")
            ),
        );
    }
    html.push_str("</table>");
}

fn object(html: &mut String, name: &str, schema: &Value) {
    put(
        html,
        format_args!(
            "<section id=\"{0}\"><h3><code>{0}</code></h3><p>{1}</p>",
            escape(name),
            prose(text(&schema["description"]))
        ),
    );
    if let Some(properties) = schema["properties"].as_object() {
        let required = schema["required"].as_array();
        html.push_str("<table><tr><th>field<th>type<th></tr>");
        for (field, property) in properties {
            let needed = required.is_some_and(|required| required.iter().any(|name| name == field));
            put(
                html,
                format_args!(
                    "<tr><td><code>{}</code>{}<td>{}<td>{}</tr>",
                    escape(field),
                    if needed { " *" } else { "" },
                    kind_of(property),
                    prose(text(&property["description"]))
                ),
            );
        }
        html.push_str("</table>");
    }
    if schema["example"].is_object() {
        let example = serde_json::to_string_pretty(&schema["example"]).unwrap_or_default();
        put(html, format_args!("<pre>{}</pre>", escape(&example)));
    }
    html.push_str("</section>");
}

/// The type of a schema as short HTML.
fn kind_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    if let Some(several) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        return several.iter().map(kind_of).collect::<Vec<_>>().join(" or ");
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| format!("<code>{}</code>", escaped(word))).collect::<Vec<_>>().join(" or ");
    }
    let mut html = match &schema["type"] {
        Value::String(kind) => escape(kind),
        Value::Array(kinds) => kinds.iter().map(escaped).collect::<Vec<_>>().join(" or "),
        _ => "any JSON".to_owned(),
    };
    if schema["items"].is_object() {
        html = format!("{html} of {}", kind_of(&schema["items"]));
    }
    if let Some(format) = schema["format"].as_str() {
        put(&mut html, format_args!(", {}", escape(format)));
    }
    for (key, words) in [("minimum", "from"), ("maximum", "to"), ("default", "default")] {
        if !schema[key].is_null() {
            put(&mut html, format_args!(", {words} <code>{}</code>", escape(&schema[key].to_string())));
        }
    }
    html
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn escaped(value: &Value) -> String {
    value.as_str().map_or_else(|| escape(&value.to_string()), escape)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escapes text; text between backticks becomes code.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) }).collect()
}

/// Writing to a `String` does not fail.
fn put(html: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = html.write_fmt(what);
}
