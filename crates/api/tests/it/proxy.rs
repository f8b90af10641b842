//! Users whom a trusted proxy has authenticated.

use axum::http::HeaderName;
use everytick_api::{Auth, AuthMode, ProxyAuth, Trusted};
use everytick_domain::access::{GrantRule, LifetimePolicy, NamedGrant, Role, Scope};
use serde_json::{Value, json};

use crate::support::{Answer, Server, job};

fn rule(group: &str, tenant: &str, role: Role) -> GrantRule {
    let grant = NamedGrant { tenant: Some(tenant.to_owned()), role, scope: Scope::default() };
    GrantRule { group: group.to_owned(), grant }
}

/// A server that trusts this network. Requests of the tests come from 127.0.0.1.
async fn server(trusted: &str) -> Server {
    let proxy = ProxyAuth {
        trusted: Trusted { networks: vec![trusted.parse().unwrap()], unix: false },
        user_header: HeaderName::from_static("remote-user"),
        groups_header: HeaderName::from_static("remote-groups"),
        grants: vec![
            rule("all", "default", Role::Viewer),
            rule("ops", "default", Role::Editor),
            rule("admins", "default", Role::Admin),
            rule("others", "gone", Role::Admin),
        ],
    };
    Server::with_auth(Auth::new(AuthMode::Required, LifetimePolicy::default(), None).with_proxy(Some(proxy))).await
}

async fn call(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    server.call(method, path, headers, crate::support::text_of(&body)).await
}

async fn me(server: &Server, headers: &[(&str, &str)]) -> Answer {
    call(server, "GET", "/api/v1/me", headers, Value::Null).await
}

#[tokio::test]
async fn a_trusted_proxy_names_the_user_and_its_groups() {
    let server = server("127.0.0.1/32").await;
    let ann = [("remote-user", "ann"), ("remote-groups", "all, ops ,x")];
    let caller = me(&server, &ann).await.expect(200);
    assert_eq!((&caller["actor"], &caller["role"]), (&json!("proxy:ann"), &json!("editor")), "the highest role");
    assert_eq!((&caller["token"], &caller["session"]), (&Value::Null, &Value::Null));
    call(&server, "POST", "/api/v1/jobs", &ann, job("j")).await.expect(201);
    let bob = [("remote-user", "bob"), ("remote-groups", "all")];
    call(&server, "POST", "/api/v1/jobs", &bob, job("k")).await.expect(403);
    for groups in ["", "unknown", "others", "OPS"] {
        let refused = me(&server, &[("remote-user", "eve"), ("remote-groups", groups)]).await.expect(403);
        assert!(refused["detail"].as_str().unwrap().contains("\"eve\""), "{groups}: {refused}");
    }
    me(&server, &[("remote-user", "eve")]).await.expect(403);
    me(&server, &[("remote-groups", "ops")]).await.expect(401);
    let header = [("everytick-tenant", "default"), ann[0], ann[1]];
    me(&server, &header).await.expect(403);
    let admin =
        [("remote-user", "root"), ("remote-groups", "admins"), ("x-forwarded-for", "198.51.100.1, 203.0.113.7")];
    let rows = call(&server, "GET", "/api/v1/audit?action=create", &admin, Value::Null).await.expect(200);
    let row = &rows["items"][0];
    assert_eq!(
        (&row["actor"], &row["actor_kind"], &row["ip"]),
        (&json!("proxy:ann"), &json!("proxy"), &json!("127.0.0.1"))
    );
    call(&server, "POST", "/api/v1/jobs", &admin, job("l")).await.expect(201);
    let rows =
        call(&server, "GET", "/api/v1/audit?action=create&actor=proxy:root", &admin, Value::Null).await.expect(200);
    assert_eq!(rows["items"][0]["ip"], "203.0.113.7", "the client cannot choose its address");
}

#[tokio::test]
async fn a_header_that_occurs_twice_or_is_no_name_is_refused() {
    let server = server("127.0.0.1/32").await;
    let long = "a".repeat(201);
    for headers in [
        &[("remote-user", "ann"), ("remote-user", "bob"), ("remote-groups", "ops")][..],
        &[("remote-user", "ann"), ("remote-groups", "ops"), ("remote-groups", "admins")],
        &[("remote-user", ""), ("remote-groups", "ops")],
        &[("remote-user", "änn"), ("remote-groups", "ops")],
        &[("remote-user", &long), ("remote-groups", "ops")],
    ] {
        let refused = me(&server, headers).await.expect(400);
        assert_eq!(refused["errors"].as_array().unwrap().len(), 1, "{refused}");
    }
}

#[tokio::test]
async fn headers_from_an_untrusted_address_are_refused() {
    let server = server("10.0.0.5/32").await;
    let headers = [("remote-user", "root"), ("remote-groups", "admins")];
    for forwarded in ["10.0.0.5", "127.0.0.1", "203.0.113.7, 10.0.0.5"] {
        me(&server, &[headers[0], headers[1], ("x-forwarded-for", forwarded)]).await.expect(401);
    }
    me(&server, &headers).await.expect(401);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_proxy() {
    let server = server("127.0.0.1/32").await;
    let ann = [("remote-user", "ann"), ("remote-groups", "ops")];
    for foreign in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        call(&server, "POST", "/api/v1/jobs", &[ann[0], ann[1], foreign], job("j")).await.expect(403);
    }
}
