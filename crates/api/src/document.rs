//! The OpenAPI document. It is generated from the routes; this file adds the error answers that every route can give.

use utoipa::openapi::{
    ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder,
    path::{HttpMethod, Operation, Parameter, PathItem},
    schema::{Schema, SchemaType, Type},
    tag::TagBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::{
    error::PROBLEM_JSON,
    routes,
    wire::{IdempotencyKey, IfMatchTag, target::Kind},
};

/// Error answers of every request.
const ANY: [(&str, &str); 7] = [
    ("400", "A parameter, a header or the JSON cannot be parsed"),
    ("401", "The request needs a credential, and has none or a wrong one"),
    (
        "403",
        "The caller's role or scope does not include the request, or the request comes from a page of another site, or its `Host` is not this server's",
    ),
    ("408", "The request took too long"),
    ("429", "The caller sends too many requests, or too many wrong credentials. The answer has `Retry-After`"),
    ("500", "Internal server error"),
    ("503", "The store is not available, or this node is busy. A busy node sends `Retry-After`"),
];
/// Error answers of a request with a body.
const WITH_BODY: [(&str, &str); 3] = [
    ("413", "The body is too large"),
    ("415", "The media type of the body is not supported"),
    ("422", "The content is not valid; each wrong field is listed"),
];

/// The OpenAPI document of every route.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut document = routes::all().into_openapi();
    document.info = InfoBuilder::new()
        .title("Everytick")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(LicenseBuilder::new().name("MIT OR Apache-2.0").identifier(Some("MIT OR Apache-2.0")).build()))
        .build();
    document.tags = Some(
        [
            ("jobs", "Definitions: what to run, and when"),
            ("runs", "Runs in every state, and skipped ticks with their reasons"),
            ("backfills", "Runs for past ticks"),
            ("flows", "A root run and the runs of the jobs that depend on it"),
            ("queues", "Queues from which workers claim runs"),
            ("schedules", "Preview of a schedule that is not stored"),
            ("calendars", "Dates that schedules exclude"),
            ("secrets", "Values that jobs refer to, written and never read back"),
            ("audit", "Who changed what"),
            ("tenants", "Tenants, which see nothing of each other"),
            ("tokens", "API tokens, and what the caller may do"),
            ("node", "Health, readiness and metrics of the node, and the cluster"),
            ("docs", "This document"),
        ]
        .map(|(name, description)| TagBuilder::new().name(name).description(Some(description)).build())
        .into(),
    );
    // The router does not collect schemas that only parameters name.
    let components = document.components.get_or_insert_default();
    components.schemas.insert(IfMatchTag::name().into_owned(), IfMatchTag::schema());
    components.schemas.insert(Kind::name().into_owned(), Kind::schema());
    components.schemas.insert(IdempotencyKey::name().into_owned(), IdempotencyKey::schema());
    for (route, path) in &mut document.paths.paths {
        let named: &[_] = if route.contains('{') { &[("404", "No resource has this name or id")] } else { &[] };
        let by_id = ["{id}", "{job}"].iter().any(|part| route.contains(part));
        let by_id: &[_] =
            if by_id { &[("409", "Several ids begin with this prefix; the errors list them")] } else { &[] };
        for (method, operation) in operations(path) {
            operation.parameters.iter_mut().flatten().for_each(never_null);
            let body = matches!(method, HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch);
            let more: &[_] = if body { &WITH_BODY } else { &[] };
            for (status, description) in ANY.iter().chain(more).chain(named).chain(by_id) {
                let known = operation.responses.responses.contains_key(*status);
                if !known {
                    operation.responses.responses.insert((*status).to_owned(), RefOr::T(problem(description)));
                }
            }
        }
    }
    document
}

const DESCRIPTION: &str = "A distributed cron: every tick of every enabled job is recorded exactly once, as one run or as one \
skip with its reason; a run is delivered at least once, always under the same id, never before its time.\n\n\
Durations are written as `90s`, `15m`, `1h30m`, `7d`; instants as RFC 3339 in UTC. Lists answer `items` and \
`next_cursor`, and take `limit` and `cursor`. Errors are problem documents (RFC 9457) that name each wrong field.";

fn problem(description: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, content).build()
}

/// A parameter can be absent but not null, so its schema must not allow null.
fn never_null(parameter: &mut RefOr<Parameter>) {
    let RefOr::T(parameter) = parameter else { return };
    match &mut parameter.schema {
        Some(RefOr::T(Schema::Object(object))) => without_null(&mut object.schema_type),
        Some(RefOr::T(Schema::Array(array))) => without_null(&mut array.schema_type),
        Some(schema @ RefOr::T(Schema::OneOf(_))) => {
            let RefOr::T(Schema::OneOf(several)) = &*schema else { return };
            if let Some(one) = several.items.iter().find(|one| matches!(one, RefOr::Ref(_))) {
                *schema = one.clone();
            }
        }
        _ => {}
    }
}

fn without_null(kinds: &mut SchemaType) {
    if let SchemaType::Array(several) = kinds {
        several.retain(|kind| *kind != Type::Null);
        if let [one] = several.as_slice() {
            *kinds = SchemaType::Type(one.clone());
        }
    }
}

fn operations(path: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    [
        (HttpMethod::Get, &mut path.get),
        (HttpMethod::Post, &mut path.post),
        (HttpMethod::Put, &mut path.put),
        (HttpMethod::Patch, &mut path.patch),
        (HttpMethod::Delete, &mut path.delete),
    ]
    .into_iter()
    .filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}
