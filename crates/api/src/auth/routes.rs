//! The permission that each route needs. A test compares this table with the OpenAPI document: a route without a row fails it.

use axum::http::Method;
use everytick_domain::access::Permission;

use Permission::{
    Cluster, Control, Instance, Manage, Own, Public, Read, ReadInstance, ReadManage, ReadSecrets, Work, Write,
};

/// Method, path as the router has it, permission.
const ROUTES: &[(&str, &str, Permission)] = &[
    ("GET", "/healthz", Public),
    ("GET", "/readyz", Public),
    ("GET", "/", Public),
    ("GET", "/docs", Public),
    ("GET", "/docs/style.css", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/metrics", ReadInstance),
    ("GET", "/api/v1/cluster", Cluster),
    ("GET", "/api/v1/jobs", Read),
    ("POST", "/api/v1/jobs", Write),
    ("POST", "/api/v1/jobs/batch", Write),
    ("GET", "/api/v1/jobs/{job}", Read),
    ("PUT", "/api/v1/jobs/{job}", Write),
    ("PATCH", "/api/v1/jobs/{job}", Write),
    ("DELETE", "/api/v1/jobs/{job}", Write),
    ("GET", "/api/v1/jobs/{job}/next", Read),
    ("GET", "/api/v1/jobs/{job}/explain", Read),
    ("GET", "/api/v1/jobs/{job}/runs", Read),
    ("GET", "/api/v1/jobs/{job}/backfills", Read),
    ("POST", "/api/v1/jobs/{job}/pause", Control),
    ("POST", "/api/v1/jobs/{job}/resume", Control),
    ("POST", "/api/v1/jobs/{job}/trigger", Control),
    ("POST", "/api/v1/jobs/{job}/cancel", Control),
    ("POST", "/api/v1/jobs/{job}/redrive", Control),
    ("POST", "/api/v1/jobs/{job}/backfill", Control),
    ("GET", "/api/v1/backfills/{id}", Read),
    ("POST", "/api/v1/backfills/{id}/cancel", Control),
    ("POST", "/api/v1/schedules/preview", Read),
    ("GET", "/api/v1/calendars", Read),
    ("GET", "/api/v1/calendars/{name}", Read),
    ("PUT", "/api/v1/calendars/{name}", Write),
    ("DELETE", "/api/v1/calendars/{name}", Write),
    ("GET", "/api/v1/secrets", ReadSecrets),
    ("GET", "/api/v1/secrets/{name}", ReadSecrets),
    ("PUT", "/api/v1/secrets/{name}", Manage),
    ("DELETE", "/api/v1/secrets/{name}", Manage),
    ("POST", "/api/v1/secrets/{name}/rotate", Manage),
    ("GET", "/api/v1/runs", Read),
    ("GET", "/api/v1/runs/{id}", Read),
    ("GET", "/api/v1/runs/{id}/explain", Read),
    ("GET", "/api/v1/runs/{id}/attempts", Read),
    ("GET", "/api/v1/runs/{id}/log", Read),
    ("POST", "/api/v1/runs/{id}/log", Work),
    ("POST", "/api/v1/runs/{id}/heartbeat", Work),
    ("POST", "/api/v1/runs/{id}/settle", Work),
    ("POST", "/api/v1/runs/{id}/release", Work),
    ("POST", "/api/v1/runs/{id}/cancel", Control),
    ("POST", "/api/v1/runs/{id}/rerun", Control),
    ("GET", "/api/v1/flows", Read),
    ("GET", "/api/v1/flows/{id}", Read),
    ("POST", "/api/v1/flows/{id}/cancel", Control),
    ("POST", "/api/v1/flows/{id}/rerun", Control),
    ("GET", "/api/v1/queues", Read),
    ("GET", "/api/v1/queues/{queue}", Read),
    ("PUT", "/api/v1/queues/{queue}", Write),
    ("POST", "/api/v1/queues/{queue}/claim", Work),
    ("POST", "/api/v1/queues/{queue}/settle", Work),
    ("POST", "/api/v1/queues/{queue}/leave", Work),
    ("GET", "/api/v1/audit", ReadManage),
    ("GET", "/api/v1/tenants", ReadInstance),
    ("POST", "/api/v1/tenants", Instance),
    ("GET", "/api/v1/tenants/{name}", ReadInstance),
    ("PATCH", "/api/v1/tenants/{name}", Instance),
    ("DELETE", "/api/v1/tenants/{name}", Instance),
    ("POST", "/api/v1/tenants/{name}/suspend", Instance),
    ("POST", "/api/v1/tenants/{name}/resume", Instance),
    ("PATCH", "/api/v1/tenant", Manage),
    ("GET", "/api/v1/me", Own),
    ("GET", "/api/v1/tokens", ReadManage),
    ("POST", "/api/v1/tokens", Manage),
    ("GET", "/api/v1/tokens/{id}", ReadManage),
    ("DELETE", "/api/v1/tokens/{id}", Manage),
    // Every caller may rotate its own token; the handler checks the permission for others.
    ("POST", "/api/v1/tokens/{id}/rotate", Own),
];

/// The routes that the receiver of a delivery needs to report on it.
const FOR_RUN_TOKENS: [&str; 3] = ["/api/v1/runs/{id}/heartbeat", "/api/v1/runs/{id}/log", "/api/v1/runs/{id}/settle"];

/// The routes that stay open while the tenant is suspended: claims that exist end normally.
const WHILE_SUSPENDED: [&str; 5] = [
    "/api/v1/runs/{id}/heartbeat",
    "/api/v1/runs/{id}/log",
    "/api/v1/runs/{id}/settle",
    "/api/v1/runs/{id}/release",
    "/api/v1/queues/{queue}/settle",
];

/// Whether a request is served while the tenant of its caller is suspended.
pub(super) fn while_suspended(method: &Method, path: &str) -> bool {
    method == Method::POST && WHILE_SUSPENDED.contains(&path)
}

/// Whether a run token is accepted for a route.
pub(super) fn for_run_tokens(path: &str) -> bool {
    FOR_RUN_TOKENS.contains(&path)
}

/// The permission for a route; `None` if the router has no such route. `HEAD` needs the same permission as `GET`.
pub(super) fn permission(method: &Method, path: &str) -> Option<Permission> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES.iter().find(|(known, route, _)| *known == method && *route == path).map(|(_, _, permission)| *permission)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_route_of_the_document_has_exactly_one_permission() {
        let document = serde_json::to_value(crate::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let methods = ["get", "post", "put", "patch", "delete"];
        let served = paths.iter().flat_map(|(path, item)| {
            let has = methods.into_iter().filter(|method| item.get(method).is_some());
            has.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        });
        let served: BTreeSet<_> = served.collect();
        let listed: BTreeSet<_> =
            ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(listed.len(), ROUTES.len(), "a route is listed twice");
        assert_eq!(
            served.difference(&listed).collect::<Vec<_>>(),
            Vec::<&(String, String)>::new(),
            "add their permission"
        );
        assert_eq!(listed.difference(&served).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "no such routes");
    }

    #[test]
    fn only_health_and_documents_are_public() {
        let public: Vec<_> = ROUTES.iter().filter(|row| row.2 == Public).map(|row| row.1).collect();
        assert_eq!(public, ["/healthz", "/readyz", "/", "/docs", "/docs/style.css", "/openapi.json"]);
    }
}
