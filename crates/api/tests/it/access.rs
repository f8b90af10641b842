//! Credentials: which callers are admitted, and what each role and scope may do. The matrix is the table in
//! docs/reference/access.md. It must have a row for each operation of the OpenAPI document.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{body::to_bytes, http::HeaderMap};
use everytick_api::{Auth, AuthMode, openapi};
use everytick_domain::{
    access::{Grant, Lifetime, LifetimePolicy, Role, RunClaim, RunKey, Scope, Token},
    ids::{Fence, RunId, TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_sim::{Call, Faults, Point};
use everytick_store::{Actor, AuditFilter, Creator, NewToken, Store, TokenKey, TokenRecord};
use futures::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{Answer, Server, job, request};

const TENANT: TenantId = TenantId::DEFAULT;

fn grant(role: Role) -> Grant {
    let queues = (role == Role::Worker).then(|| vec!["*".to_owned().try_into().unwrap()]);
    let tenant = (role != Role::Instance).then_some(TENANT);
    Grant { tenant, role, scope: Scope { queues, ..Scope::default() } }
}

/// A new token, derived from a number.
fn new_token(n: u8, grant: Grant) -> NewToken {
    let token = Token::from_random(&[n; 64]).unwrap();
    let id = TokenId::new(DbTime::EPOCH, [n; 10]);
    let key = TokenKey { hash: token.hash(), id, prefix: token.prefix().to_owned() };
    NewToken { key, name: format!("t{n}"), grant, allowed_ips: Vec::new(), lifetime: Lifetime::For(Span::days(90)) }
}

/// Stores a token. Each token needs its own number.
async fn add(store: &Arc<dyn Store>, n: u8, grant: Grant, lifetime: Lifetime) -> (String, TokenRecord) {
    let token = Token::from_random(&[n; 64]).unwrap();
    let new = NewToken { lifetime, ..new_token(n, grant) };
    let creator = Creator::Grant(self::grant(Role::Instance));
    let made = store.create_token(&Actor::local("test"), &creator, new).await.unwrap();
    (token.expose().to_owned(), made)
}

async fn token(server: &Server, n: u8, grant: Grant) -> String {
    add(&server.store, n, grant, Lifetime::For(Span::days(90))).await.0
}

async fn call_as(server: &Server, token: &str, method: &str, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.call(method, path, &[("authorization", &bearer)], body).await
}

async fn get(server: &Server, token: &str, path: &str) -> Answer {
    call_as(server, token, "GET", path, Value::Null).await
}

fn scoped(role: Role, scope: Scope) -> Grant {
    Grant { scope, ..grant(role) }
}

fn prefix(text: &str) -> Scope {
    Scope { job_prefix: Some(text.to_owned()), ..Scope::default() }
}

fn queues(names: &[&str]) -> Scope {
    Scope {
        queues: Some(names.iter().map(|name| (*name).to_owned().try_into().unwrap()).collect()),
        ..Scope::default()
    }
}

/// Method and path of each row of the reference page, with a column for each role: viewer, operator, editor, admin, worker,
/// instance.
fn matrix() -> BTreeMap<(String, String), Vec<bool>> {
    let page = include_str!("../../../../docs/reference/access.md");
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = page.lines().filter(|line| line.starts_with("| ")).map(cells);
    let rows =
        rows.filter(|row| row.len() == 8 && ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&row[0].as_str()));
    rows.map(|row| {
        ((row[0].clone(), row[1].trim_matches('`').to_owned()), row[2..].iter().map(|cell| cell == "+").collect())
    })
    .collect()
}

fn operations() -> Vec<(String, String)> {
    let document = serde_json::to_value(openapi()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            if item.get(method).is_some() {
                found.push((method.to_uppercase(), path.clone()));
            }
        }
    }
    found
}

#[tokio::test]
async fn each_role_is_admitted_to_the_routes_of_its_column_in_the_matrix() {
    let server = Server::required().await;
    let mut tokens = Vec::new();
    for (n, role) in (1..).zip(Role::ALL) {
        tokens.push((role, token(&server, n, grant(role)).await));
    }
    let (matrix, operations) = (matrix(), operations());
    let listed: Vec<_> = matrix.keys().cloned().collect();
    let mut served = operations.clone();
    served.sort();
    assert_eq!(listed, served, "docs/reference/access.md has one row for each operation");
    for (method, path) in operations {
        let row = &matrix[&(method.clone(), path.clone())];
        let is_public = !path.starts_with("/api/v1/") && path != "/metrics";
        let url = path.replace("{id}", "01a1e327-d180-8de1-8000-000000000000").replace(['{', '}'], "");
        let body = if method == "GET" { String::new() } else { "{}".to_owned() };
        let none = server.call(&method, &url, &[], body.clone()).await.status.as_u16();
        assert_eq!(none == 401, !is_public, "{method} {path} without a credential: {none}");
        for ((role, token), allowed) in tokens.iter().zip(row) {
            let bearer = format!("Bearer {token}");
            let answer = server.call(&method, &url, &[("authorization", &bearer)], body.clone()).await;
            let status = answer.status.as_u16();
            assert_ne!(status, 401, "{method} {path} as {role}");
            assert_ne!(status, 429, "{method} {path} as {role}");
            assert_eq!(status != 403, *allowed, "{method} {path} as {role}: {status} {}", answer.text);
        }
    }
}

#[tokio::test]
async fn wrong_credentials_get_equal_answers_until_the_address_is_limited() {
    let server = Server::required().await;
    let (valid, _) = add(&server.store, 1, grant(Role::Viewer), Lifetime::For(Span::days(1))).await;
    let (expired, _) = add(&server.store, 2, grant(Role::Viewer), Lifetime::For(Span::millis(0))).await;
    let (revoked, record) = add(&server.store, 3, grant(Role::Viewer), Lifetime::Unlimited).await;
    server.store.revoke_token(&Actor::local("test"), Some(TENANT), record.id).await.unwrap();
    let unknown = Token::from_random(&[9; 64]).unwrap().expose().to_owned();
    let mistyped = format!("{}x", &valid[..41]);
    assert_eq!(get(&server, &valid, "/api/v1/jobs").await.status.as_u16(), 200);
    let none = server.get("/api/v1/jobs").await;
    assert_eq!((none.status.as_u16(), none.header("www-authenticate")), (401, "Bearer realm=\"everytick\""));
    assert!(none.text.contains("urn:everytick:problem:unauthenticated"), "{}", none.text);
    let in_query = server.get(&format!("/api/v1/jobs?access_token={valid}")).await;
    assert_eq!((in_query.status, &in_query.text), (none.status, &none.text));
    let long = "e".repeat(8_192);
    let mut failed = 0;
    for value in [
        format!("Bearer {expired}"),
        format!("Bearer {revoked}"),
        format!("Bearer {unknown}"),
        format!("Bearer {mistyped}"),
        format!("Bearer {long}"),
        format!("Basic {valid}"),
        "Bearer ".to_owned(),
        "Bearer etr_00".to_owned(),
        valid.clone(),
        "Bearer \u{fe}".to_owned(),
    ] {
        let answer = server.call("GET", "/api/v1/jobs", &[("authorization", &value)], "").await;
        assert_eq!((answer.status.as_u16(), &answer.text), (401, &none.text), "{value}");
        failed += 1;
    }
    assert_eq!(failed, 10);
    let limited = get(&server, &unknown, "/api/v1/jobs").await;
    assert_eq!((limited.status.as_u16(), limited.header("retry-after")), (429, "6"), "{}", limited.text);
    assert_eq!(get(&server, &valid, "/api/v1/jobs").await.status.as_u16(), 200, "a known token is not affected");
    let fresh = token(&server, 4, grant(Role::Viewer)).await;
    assert_eq!(get(&server, &fresh, "/api/v1/jobs").await.status.as_u16(), 200, "a token that is not in the cache");
}

#[tokio::test]
async fn the_first_token_closes_an_open_api_and_revoking_the_last_keeps_it_closed() {
    let server = Server::new().await;
    let me = server.get("/api/v1/me").await.expect(200);
    assert_eq!((&me["actor"], &me["role"], &me["tenant"]), (&json!("local"), &Value::Null, &json!("default")));
    let made = server.post("/api/v1/tokens", json!({"name": "first", "role": "admin"})).await.expect(201);
    let secret = made["token"].as_str().unwrap();
    assert!(Token::parse(secret).is_ok() && secret.starts_with(made["prefix"].as_str().unwrap()));
    assert_eq!(server.get("/api/v1/jobs").await.status.as_u16(), 401);
    let me = get(&server, secret, "/api/v1/me").await.expect(200);
    assert_eq!((&me["actor"], &me["role"]), (&json!("token:first"), &json!("admin")));
    assert!(me["permissions"].as_array().unwrap().contains(&json!("manage")), "{me}");
    let listed = get(&server, secret, "/api/v1/tokens").await.expect(200);
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["name"]), (1, &json!("first")));
    assert!(!listed.to_string().contains(secret));
    let path = format!("/api/v1/tokens/{}", made["id"].as_str().unwrap());
    call_as(&server, secret, "DELETE", &path, Value::Null).await.expect(200);
    assert_eq!(get(&server, secret, "/api/v1/jobs").await.status.as_u16(), 401, "it is revoked at once on this node");
    assert_eq!(server.get("/api/v1/jobs").await.status.as_u16(), 401);
}

#[tokio::test]
async fn a_token_is_never_stronger_than_its_creator() {
    let server = Server::required().await;
    let admin = token(&server, 1, grant(Role::Admin)).await;
    let limited = token(&server, 2, scoped(Role::Admin, prefix("etl-"))).await;
    let create = async |token: &str, body| call_as(&server, token, "POST", "/api/v1/tokens", body).await;
    let refused = create(&admin, json!({"name": "x", "role": "instance"})).await.expect(403);
    assert_eq!(refused["errors"][0]["field"], "role", "{refused}");
    let refused = create(&limited, json!({"name": "x", "role": "viewer"})).await.expect(403);
    assert_eq!(refused["errors"][0]["field"], "scope", "{refused}");
    let narrow = create(&limited, json!({"name": "x", "role": "viewer", "job_prefix": "etl-a"})).await.expect(201);
    // Rotating a wider token would return its secret.
    let wide = server.store.list_tokens(Some(TENANT), None, 1).await.unwrap().items[0].id;
    for (method, path) in [
        ("GET", format!("/api/v1/tokens/{wide}")),
        ("DELETE", format!("/api/v1/tokens/{wide}")),
        ("POST", format!("/api/v1/tokens/{wide}/rotate")),
    ] {
        call_as(&server, &limited, method, &path, Value::Null).await.expect(404);
    }
    let seen = get(&server, &limited, "/api/v1/tokens").await.expect(200);
    assert!(!seen.to_string().contains("\"t1\"") && seen.to_string().contains("\"x\""), "{seen}");
    let path = format!("/api/v1/tokens/{}/rotate", narrow["id"].as_str().unwrap());
    call_as(&server, &limited, "POST", &path, Value::Null).await.expect(201);
}

#[tokio::test]
async fn a_caller_rotates_its_own_token_with_an_overlap() {
    let server = Server::required().await;
    let viewer = token(&server, 1, grant(Role::Viewer)).await;
    let me = get(&server, &viewer, "/api/v1/me").await.expect(200);
    let path = format!("/api/v1/tokens/{}/rotate", me["token"]["id"].as_str().unwrap());
    call_as(&server, &viewer, "POST", &path, json!({"overlap": "8d"})).await.expect(422);
    let fresh = call_as(&server, &viewer, "POST", &path, json!({"overlap": "24h"})).await.expect(201);
    let secret = fresh["token"].as_str().unwrap();
    assert_eq!((&fresh["rotated_from"], &fresh["role"]), (&me["token"]["id"], &json!("viewer")));
    assert_eq!(get(&server, secret, "/api/v1/jobs").await.status.as_u16(), 200);
    let old = get(&server, &viewer, "/api/v1/jobs").await;
    assert_eq!(old.status.as_u16(), 200);
    assert!(!old.header("everytick-token-expires").is_empty(), "it expires soon");
    let other = add(&server.store, 2, grant(Role::Viewer), Lifetime::Unlimited).await.1.id;
    call_as(&server, &viewer, "POST", &format!("/api/v1/tokens/{other}/rotate"), Value::Null).await.expect(403);
    let third = token(&server, 3, grant(Role::Viewer)).await;
    let path = format!("/api/v1/tokens/{}/rotate", TokenId::new(DbTime::EPOCH, [3; 10]));
    call_as(&server, &third, "POST", &path, json!({"overlap": "0s"})).await.expect(201);
    assert_eq!(get(&server, &third, "/api/v1/jobs").await.status.as_u16(), 401);
}

/// An attacker copies a token and rotates it. The rotation by the owner is then refused, and one request revokes both
/// tokens.
#[tokio::test]
async fn a_stolen_token_is_rotated_only_once_and_ends_together_with_the_new_token() {
    let server = Server::required().await;
    let (admin, stolen) = (token(&server, 1, grant(Role::Admin)).await, token(&server, 2, grant(Role::Viewer)).await);
    let id = TokenId::new(DbTime::EPOCH, [2; 10]);
    let rotate = async |token: &str, id: &str| {
        call_as(&server, token, "POST", &format!("/api/v1/tokens/{id}/rotate"), json!({"overlap": "7d"})).await
    };
    let made = rotate(&stolen, &id.to_string()).await.expect(201);
    let (copy, copy_id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    for (token, id) in [(&*stolen, id.to_string()), (&admin, id.to_string()), (copy, copy_id.to_owned())] {
        let refused = rotate(token, &id).await.expect(409);
        assert!(refused["detail"].as_str().unwrap().contains("rotat"), "{refused}");
    }
    get(&server, copy, "/api/v1/jobs").await.expect(200);
    let ended = call_as(&server, &admin, "DELETE", &format!("/api/v1/tokens/{id}"), Value::Null).await.expect(200);
    assert_eq!(ended["id"], id.to_string());
    assert_eq!((&ended["also_revoked"][0]["id"], ended["also_revoked"].as_array().unwrap().len()), (&made["id"], 1));
    for token in [&*stolen, copy] {
        assert_eq!(get(&server, token, "/api/v1/jobs").await.status.as_u16(), 401);
    }
    get(&server, &admin, "/api/v1/jobs").await.expect(200);
}

/// The calls of the API to its store.
#[derive(Default)]
struct Calls(Mutex<Vec<Point>>);

impl Faults for Calls {
    fn call(&self, point: Point) -> Option<Call> {
        self.0.lock().unwrap().push(point);
        None
    }
}

impl Calls {
    /// The calls since this was last called.
    fn made(&self) -> Vec<Point> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn simulated() -> (Arc<Calls>, Server) {
    let calls = Arc::new(Calls::default());
    let auth = Auth::new(AuthMode::Required, LifetimePolicy::default(), None);
    (calls.clone(), Server::simulated_with(calls, auth))
}

#[tokio::test]
async fn wrong_tokens_cost_few_queries_and_mistyped_ones_none() {
    let (calls, server) = simulated();
    // 1,000 tokens that no store knows.
    let guesses: Vec<String> = (0..1_000u32)
        .map(|n| {
            let mut random = [0; 64];
            random[..4].copy_from_slice(&n.to_be_bytes().map(|byte| byte % 62));
            Token::from_random(&random).unwrap().expose().to_owned()
        })
        .collect();
    for guess in &guesses[..10] {
        get(&server, guess, "/api/v1/jobs").await.expect(401);
    }
    assert!(calls.made().iter().filter(|point| **point == Point::Read).count() <= 10);
    for _ in 0..100 {
        let mistyped = format!("{}x", &guesses[0][..41]);
        get(&server, &mistyped, "/api/v1/jobs").await.expect(429);
    }
    assert_eq!(calls.made(), [], "the checksum is wrong");
    let answers = join_all(guesses.iter().map(|guess| get(&server, guess, "/api/v1/jobs"))).await;
    assert!(answers.iter().all(|answer| answer.status.as_u16() == 429));
    let queries = calls.made().len();
    assert!(queries <= 10, "{queries} for 1,000 wrong tokens");
}

/// The number in base 62 at the beginning of a token that no store knows.
fn guess(number: u32) -> String {
    let digits = [number / (62 * 62), number / 62 % 62, number % 62];
    let mut random = [0; 64];
    random[..3].copy_from_slice(&digits.map(|digit| u8::try_from(digit).unwrap()));
    Token::from_random(&random).unwrap().expose().to_owned()
}

#[tokio::test]
async fn right_and_wrong_checksums_differ_only_by_the_query() {
    const TRIES: u32 = 5_000;
    let mut answers: Vec<Vec<(u16, String, usize)>> = Vec::new();
    for is_right in [true, false] {
        // Each server counts failures of its own.
        let (calls, server) = simulated();
        let tries = (0..TRIES).map(guess).map(|guess| match is_right {
            true => guess,
            false => format!("{}{}", &guess[..41], if guess.ends_with('0') { '1' } else { '0' }),
        });
        let tries: Vec<String> = tries.collect();
        let (first, rest) = tries.split_at(20);
        let mut all = Vec::new();
        for guess in first {
            all.push(get(&server, guess, "/api/v1/jobs").await);
        }
        all.extend(join_all(rest.iter().map(|guess| get(&server, guess, "/api/v1/jobs"))).await);
        let queries = calls.made().iter().filter(|point| **point == Point::Read).count();
        assert_eq!(queries > 0, is_right, "{queries}");
        assert!(queries <= 100, "{queries} for {TRIES} tries");
        // The time in `retry-after`, the id of the request and its date differ between any two answers.
        let of = |answer: &Answer| (answer.status.as_u16(), answer.text.clone(), answer.headers.len());
        answers.push(all.iter().map(of).collect());
    }
    assert_eq!(answers[0][..10], answers[1][..10]);
    let limited: Vec<_> = answers.iter().map(|all| all.iter().filter(|answer| answer.0 == 429).count()).collect();
    // One failure per 6 s is answered with 401 and not with 429.
    assert!(limited.iter().all(|count| *count > 4_900), "{limited:?}");
    let body = |all: &[(u16, String, usize)]| all.iter().find(|answer| answer.0 == 429).cloned();
    assert_eq!(body(&answers[0]), body(&answers[1]));
}

#[tokio::test]
async fn a_node_that_does_not_know_of_the_first_token_yet_creates_no_second_one() {
    let server = Server::new().await;
    server.get("/api/v1/jobs").await.expect(200);
    // Another node creates the first token. This node uses its cached setting for up to 5 s.
    let first = new_token(1, grant(Role::Admin));
    server.store.create_token(&Actor::local("test"), &Creator::First, first).await.unwrap();
    server.get("/api/v1/jobs").await.expect(200);
    let refused = server.post("/api/v1/tokens", json!({"name": "mine", "role": "instance"})).await.expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("a credential exists"), "{refused}");
    assert_eq!(server.store.list_tokens(None, None, 10).await.unwrap().items, []);
}

#[tokio::test]
async fn an_api_that_is_open_by_a_flag_creates_tokens_after_the_first() {
    let server = Server::with_auth(Auth::new(AuthMode::Open, LifetimePolicy::default(), None)).await;
    for role in ["admin", "viewer"] {
        server.post("/api/v1/tokens", json!({"name": role, "role": role})).await.expect(201);
    }
}

#[tokio::test]
async fn a_first_token_that_cannot_create_others_is_refused_and_the_api_stays_open() {
    let server = Server::new().await;
    let refused = server.post("/api/v1/tokens", json!({"name": "x", "role": "viewer"})).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "role", "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("the role admin first"), "{refused}");
    let limited = json!({"name": "x", "role": "admin", "read_only": true});
    let refused = server.post("/api/v1/tokens", limited).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "read_only", "{refused}");
    server.get("/api/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn a_worker_whose_token_was_revoked_while_it_waited_gets_no_run() {
    let (calls, server) = simulated();
    let (admin, worker) = (token(&server, 1, grant(Role::Admin)).await, token(&server, 2, grant(Role::Worker)).await);
    call_as(&server, &admin, "POST", "/api/v1/jobs", queue_job("j", "q")).await.expect(201);
    let mut waiting = pin!(call_as(
        &server,
        &worker,
        "POST",
        "/api/v1/queues/q/claim",
        json!({"worker": "w", "limit": 1, "wait": "20s"})
    ));
    calls.made();
    while !calls.made().contains(&Point::Claim) {
        tokio::select! {
            biased;
            answer = &mut waiting => panic!("{}", answer.text),
            () = tokio::task::yield_now() => {}
        }
    }
    let id = TokenId::new(DbTime::EPOCH, [2; 10]);
    call_as(&server, &admin, "DELETE", &format!("/api/v1/tokens/{id}"), Value::Null).await.expect(200);
    let run = call_as(&server, &admin, "POST", "/api/v1/jobs/j/trigger", Value::Null).await.expect(201);
    waiting.await.expect(401);
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    assert_eq!(get(&server, &admin, &path).await.expect(200)["state"], "waiting");
}

#[tokio::test]
async fn a_live_log_ends_when_the_token_of_its_reader_is_revoked() {
    let server = Server::required().await;
    let (admin, worker) = (token(&server, 1, grant(Role::Admin)).await, token(&server, 2, grant(Role::Worker)).await);
    let reader = token(&server, 3, grant(Role::Viewer)).await;
    call_as(&server, &admin, "POST", "/api/v1/jobs", queue_job("j", "q")).await.expect(201);
    call_as(&server, &admin, "POST", "/api/v1/jobs/j/trigger", Value::Null).await.expect(201);
    let claim = json!({"worker": "w", "limit": 1});
    let claimed = call_as(&server, &worker, "POST", "/api/v1/queues/q/claim", claim).await.expect(200);
    let run = claimed["runs"][0]["id"].as_str().unwrap();
    let log = server.live.open(run.parse().unwrap());
    log.push(b"first");
    let bearer = format!("Bearer {reader}");
    let read = request("GET", &format!("/api/v1/runs/{run}/log"), &[("authorization", &bearer)], "");
    let response = server.router.clone().oneshot(read).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let id = TokenId::new(DbTime::EPOCH, [3; 10]);
    call_as(&server, &admin, "DELETE", &format!("/api/v1/tokens/{id}"), Value::Null).await.expect(200);
    let text = tokio::time::timeout(Duration::from_secs(60), to_bytes(response.into_body(), 10_000)).await;
    let text = String::from_utf8(text.expect("the stream ends").unwrap().to_vec()).unwrap();
    assert!(!text.contains("event: end"), "{text}");
    drop(log);
}

#[tokio::test]
async fn a_wrong_token_request_names_each_field() {
    let server = Server::new().await;
    for (body, field) in [
        (json!({"name": "", "role": "viewer"}), "name"),
        (json!({"name": "x", "role": "root"}), "role"),
        (json!({"name": "x", "role": "worker"}), "queues"),
        (json!({"name": "x", "role": "worker", "queues": ["a b"]}), "queues"),
        (json!({"name": "x", "role": "worker", "queues": ["a"], "job_prefix": "a"}), "job_prefix"),
        (json!({"name": "x", "role": "viewer", "expires": "never"}), "expires"),
        (json!({"name": "x", "role": "viewer", "expires": "367d"}), "expires"),
        (json!({"name": "x", "role": "viewer", "expires": "soon"}), "expires"),
        (json!({"name": "x", "role": "viewer", "allowed_ips": ["ten"]}), "allowed_ips"),
        (json!({"name": "x", "role": "viewer", "tenant": "other"}), "tenant"),
    ] {
        let problem = server.post("/api/v1/tokens", body.clone()).await.expect(422);
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
    }
    server.get("/api/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn a_token_is_accepted_only_from_its_networks() {
    let server = Server::new().await;
    let create = async |name: &str, network: &str| {
        let body = json!({"name": name, "role": "admin", "allowed_ips": [network]});
        server.post("/api/v1/tokens", body).await.expect(201)["token"].as_str().unwrap().to_owned()
    };
    // Requests of this test come from 127.0.0.1. The first token closes the API.
    let elsewhere = create("elsewhere", "10.0.0.0/8").await;
    assert_eq!(get(&server, &elsewhere, "/api/v1/jobs").await.status.as_u16(), 401);
    let here = Grant { ..grant(Role::Admin) };
    let token = Token::from_random(&[5; 64]).unwrap();
    let key = TokenKey { hash: token.hash(), id: TokenId::new(DbTime::EPOCH, [5; 10]), prefix: "etk_".to_owned() };
    let allowed_ips = vec!["127.0.0.1/32".to_owned()];
    let new = NewToken { key, name: "here".to_owned(), grant: here, allowed_ips, lifetime: Lifetime::Unlimited };
    server.store.create_token(&Actor::local("test"), &Creator::Open, new).await.unwrap();
    assert_eq!(get(&server, token.expose(), "/api/v1/jobs").await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_read_only_token_changes_nothing() {
    let server = Server::required().await;
    let reads = Scope { read_only: true, ..Scope::default() };
    let admin = token(&server, 1, scoped(Role::Admin, reads.clone())).await;
    let instance = token(&server, 2, scoped(Role::Instance, reads)).await;
    assert_eq!(get(&server, &admin, "/api/v1/jobs").await.status.as_u16(), 200);
    assert_eq!(get(&server, &admin, "/api/v1/audit").await.status.as_u16(), 200);
    call_as(&server, &admin, "POST", "/api/v1/jobs", job("x")).await.expect(403);
    call_as(&server, &admin, "POST", "/api/v1/tokens", json!({"name": "x", "role": "viewer"})).await.expect(403);
    assert_eq!(get(&server, &instance, "/metrics").await.status.as_u16(), 200);
}

#[tokio::test]
async fn an_instance_token_acts_inside_a_tenant_only_if_it_names_the_tenant() {
    let server = Server::required().await;
    let (instance, admin) =
        (token(&server, 1, grant(Role::Instance)).await, token(&server, 2, grant(Role::Admin)).await);
    let inside = async |token: &str, tenant: &str, method: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {token}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        server.call(method, path, &[("authorization", &bearer), ("everytick-tenant", tenant)], body).await
    };
    get(&server, &instance, "/api/v1/jobs").await.expect(403);
    inside(&instance, "default", "GET", "/api/v1/jobs", Value::Null).await.expect(200);
    inside(&instance, "other", "GET", "/api/v1/jobs", Value::Null).await.expect(404);
    inside(&admin, "default", "GET", "/api/v1/jobs", Value::Null).await.expect(403);
    let made = json!({"name": "a", "role": "admin"});
    let made = inside(&instance, "default", "POST", "/api/v1/tokens", made).await.expect(201);
    assert_eq!((&made["tenant"], &made["created_by"]), (&json!("default"), &json!("token:t1")));
    let more = json!({"name": "i2", "role": "instance"});
    assert_eq!(inside(&instance, "default", "POST", "/api/v1/tokens", more).await.expect(201)["tenant"], Value::Null);
    let seen =
        |page: Value| page["items"].as_array().unwrap().iter().filter(|token| token["role"] == "instance").count();
    assert_eq!(seen(inside(&instance, "default", "GET", "/api/v1/tokens", Value::Null).await.expect(200)), 2);
    assert_eq!(seen(get(&server, &admin, "/api/v1/tokens").await.expect(200)), 0);
}

fn queue_job(name: &str, queue: &str) -> Value {
    json!({"name": name, "target": {"queue": {"name": queue}}})
}

#[tokio::test]
async fn a_job_prefix_hides_everything_else() {
    let server = Server::new().await;
    for name in ["a", "etl", "etl-", "etl-1", "etl.1", "f"] {
        server.post("/api/v1/jobs", queue_job(name, "q")).await.expect(201);
    }
    let id = server.get("/api/v1/jobs/f").await.expect(200)["id"].as_str().unwrap().to_owned();
    let theirs =
        server.post("/api/v1/jobs/f/trigger", Value::Null).await.expect(201)["id"].as_str().unwrap().to_owned();
    let own =
        server.post("/api/v1/jobs/etl-1/trigger", Value::Null).await.expect(201)["id"].as_str().unwrap().to_owned();
    let editor = token(&server, 1, scoped(Role::Editor, prefix("etl-"))).await;
    let admin = token(&server, 2, scoped(Role::Admin, prefix("etl-"))).await;
    let names = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut found = Vec::new();
    let mut path = "/api/v1/jobs?limit=1".to_owned();
    loop {
        let page = get(&server, &editor, &path).await.expect(200);
        found.extend(names(&page));
        let Some(next) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/jobs?limit=1&cursor={next}");
    }
    assert_eq!(found, ["etl-", "etl-1"]);
    get(&server, &editor, "/api/v1/jobs/etl-1").await.expect(200);
    let unknown = get(&server, &editor, "/api/v1/jobs/zzz").await;
    let hidden = get(&server, &editor, "/api/v1/jobs/f").await;
    assert_eq!(
        (hidden.status.as_u16(), hidden.text.replace("\"f\\\"", "")),
        (404, unknown.text.replace("\"zzz\\\"", "")).clone(),
        "no difference"
    );
    for (method, path, body) in [
        ("GET", format!("/api/v1/jobs/{id}"), Value::Null),
        ("GET", format!("/api/v1/jobs/{}", &id[..18]), Value::Null),
        ("POST", "/api/v1/jobs/f/trigger".to_owned(), Value::Null),
        ("DELETE", "/api/v1/jobs/f".to_owned(), Value::Null),
        ("GET", "/api/v1/jobs/f/runs".to_owned(), Value::Null),
        ("GET", format!("/api/v1/runs/{theirs}"), Value::Null),
        ("GET", format!("/api/v1/runs/{}", &theirs[..20]), Value::Null),
        ("POST", format!("/api/v1/runs/{theirs}/cancel"), Value::Null),
        ("GET", "/api/v1/runs?job=f".to_owned(), Value::Null),
    ] {
        let answer = call_as(&server, &editor, method, &path, body).await;
        assert_eq!(answer.status.as_u16(), 404, "{method} {path}: {}", answer.text);
    }
    for (method, path, body, field) in [
        ("GET", "/api/v1/runs", Value::Null, "job"),
        ("GET", "/api/v1/flows", Value::Null, ""),
        ("POST", "/api/v1/jobs", queue_job("g", "q"), "name"),
        ("PATCH", "/api/v1/jobs/etl-1", json!({"name": "g"}), "name"),
        ("PATCH", "/api/v1/jobs/etl-1", json!({"depends_on": ["f"]}), "depends_on"),
        ("PUT", "/api/v1/queues/q", json!({}), ""),
        ("PUT", "/api/v1/calendars/c", json!({"dates": []}), ""),
    ] {
        let refused = call_as(&server, &editor, method, path, body).await.expect(403);
        assert_eq!(refused["errors"][0]["field"], field, "{method} {path}: {refused}");
    }
    let line = format!("{}\n{}\n", queue_job("etl-2", "q"), queue_job("h", "q"));
    let bearer = format!("Bearer {editor}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/x-ndjson")];
    let answers = server.call("POST", "/api/v1/jobs/batch", &headers, line).await.text;
    let statuses: Vec<u64> =
        answers.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 403], "{answers}");
    get(&server, &editor, &format!("/api/v1/runs/{own}")).await.expect(200);
    get(&server, &editor, "/api/v1/runs?job=etl-1").await.expect(200);
    call_as(&server, &editor, "POST", "/api/v1/jobs", queue_job("etl-3", "q")).await.expect(201);
    get(&server, &admin, "/api/v1/audit").await.expect(403);
    get(&server, &admin, "/api/v1/audit?subject=f").await.expect(404);
    get(&server, &admin, "/api/v1/audit?subject=etl-1").await.expect(200);
}

#[tokio::test]
async fn a_short_id_does_not_bypass_a_job_prefix() {
    let server = Server::new().await;
    let id = server.make("f").await["id"].as_str().unwrap().to_owned();
    let beginning = id[..8].to_owned();
    server.get(&format!("/api/v1/jobs/{beginning}")).await.expect(200);
    let admin = token(&server, 1, scoped(Role::Admin, prefix(&id[..4]))).await;
    for path in [
        format!("/api/v1/jobs/{beginning}"),
        format!("/api/v1/jobs/{beginning}/runs"),
        format!("/api/v1/runs?job={beginning}"),
        format!("/api/v1/audit?subject={beginning}"),
        format!("/api/v1/audit?subject={id}"),
    ] {
        let answer = get(&server, &admin, &path).await;
        assert_eq!(answer.status.as_u16(), 404, "{path}: {}", answer.text);
    }
    let own = format!("{}-x", &id[..4]);
    call_as(&server, &admin, "POST", "/api/v1/jobs", queue_job(&own, "q")).await.expect(201);
    let answer = get(&server, &admin, &format!("/api/v1/runs?job={own}&flow={beginning}")).await;
    assert_eq!(answer.status.as_u16(), 404, "{}", answer.text);
    let rows = get(&server, &admin, &format!("/api/v1/audit?subject={own}")).await.expect(200);
    assert_eq!(rows["items"].as_array().unwrap().len(), 1, "{rows}");
}

#[tokio::test]
async fn a_repeated_request_does_not_show_a_job_that_was_renamed_out_of_the_prefix() {
    let server = Server::required().await;
    let (all, limited) =
        (token(&server, 1, grant(Role::Editor)).await, token(&server, 2, scoped(Role::Editor, prefix("etl-"))).await);
    let repeat = async |path: &str, body: &Value| {
        let bearer = format!("Bearer {limited}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", path.rsplit('/').next().unwrap())];
        server.call("POST", path, &headers, body.to_string()).await
    };
    let definition = queue_job("etl-1", "q");
    let trigger = json!({"force": true});
    repeat("/api/v1/jobs", &definition).await.expect(201);
    let triggered = async || repeat("/api/v1/jobs/etl-1/trigger", &trigger).await;
    triggered().await.expect(201);
    call_as(&server, &all, "PATCH", "/api/v1/jobs/etl-1", json!({"name": "other"})).await.expect(200);
    repeat("/api/v1/jobs", &definition).await.expect(404);
    call_as(&server, &all, "POST", "/api/v1/jobs", queue_job("etl-1", "q")).await.expect(201);
    // The run belongs to the first job.
    triggered().await.expect(404);
}

#[tokio::test]
async fn a_worker_token_works_only_on_its_queues() {
    let server = Server::new().await;
    for (name, queue) in [("mine", "mail-1"), ("theirs", "other")] {
        server.post("/api/v1/jobs", queue_job(name, queue)).await.expect(201);
        server.post(&format!("/api/v1/jobs/{name}/trigger"), Value::Null).await.expect(201);
    }
    let all = token(&server, 1, grant(Role::Worker)).await;
    let worker = token(&server, 2, scoped(Role::Worker, queues(&["mail-*"]))).await;
    let viewer = token(&server, 3, scoped(Role::Viewer, queues(&["mail-*"]))).await;
    let claim = async |token: &str, queue: &str| {
        let body = json!({"worker": "w", "limit": 1});
        call_as(&server, token, "POST", &format!("/api/v1/queues/{queue}/claim"), body).await
    };
    claim(&worker, "other").await.expect(404);
    let theirs = claim(&all, "other").await.expect(200)["runs"][0].clone();
    let mine = claim(&worker, "mail-1").await.expect(200)["runs"][0].clone();
    let (id, fence) = (theirs["id"].as_str().unwrap(), &theirs["fence"]);
    for (what, body) in [
        ("heartbeat", json!({"fence": fence})),
        ("log", json!({"fence": fence, "text": "x"})),
        ("settle", json!({"fence": fence, "outcome": "succeeded"})),
        ("release", json!({"fence": fence})),
    ] {
        let refused = call_as(&server, &worker, "POST", &format!("/api/v1/runs/{id}/{what}"), body).await;
        assert_eq!(refused.status.as_u16(), 404, "{what}: {}", refused.text);
    }
    let result = |run: &Value| json!({"run": run["id"], "fence": run["fence"], "outcome": "succeeded"});
    let batch = json!({"settles": [result(&theirs), result(&mine)]});
    let settled = call_as(&server, &worker, "POST", "/api/v1/queues/mail-1/settle", batch.clone()).await.expect(200);
    let statuses = |answer: &Value| {
        answer["results"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&settled), [404, 200], "{settled}");
    let again = call_as(&server, &worker, "POST", "/api/v1/queues/mail-1/settle", batch).await.expect(200);
    assert_eq!(statuses(&again), [404, 200], "a repeat gets the same answer");
    call_as(&server, &all, "POST", &format!("/api/v1/runs/{id}/heartbeat"), json!({"fence": fence})).await.expect(200);
    let seen = get(&server, &viewer, "/api/v1/queues").await.expect(200);
    assert_eq!((seen["items"].as_array().unwrap().len(), &seen["items"][0]["name"]), (1, &json!("mail-1")));
    get(&server, &viewer, "/api/v1/queues/other").await.expect(404);
}

#[tokio::test]
async fn a_run_token_works_on_its_claim_and_nothing_else() {
    let key = RunKey::from_bytes([7; 32]);
    let auth = Auth::new(AuthMode::Required, LifetimePolicy::default(), Some(key.clone()));
    let server = Server::with_auth(auth).await;
    let worker = token(&server, 1, grant(Role::Worker)).await;
    let editor = token(&server, 2, grant(Role::Editor)).await;
    call_as(&server, &editor, "POST", "/api/v1/jobs", queue_job("j", "q")).await.expect(201);
    let mut claims = Vec::new();
    for _ in 0..2 {
        call_as(&server, &editor, "POST", "/api/v1/jobs/j/trigger", json!({"force": true})).await.expect(201);
    }
    for _ in 0..2 {
        let body = json!({"worker": "w", "limit": 1});
        claims.extend(
            call_as(&server, &worker, "POST", "/api/v1/queues/q/claim", body).await.expect(200)["runs"]
                .as_array()
                .unwrap()
                .clone(),
        );
    }
    let claim = |run: &Value| RunClaim {
        tenant: TENANT,
        run: run["id"].as_str().unwrap().parse::<RunId>().unwrap(),
        fence: Fence::from_raw(run["fence"].as_i64().unwrap()),
    };
    let (run, other) = (&claims[0], &claims[1]);
    let token = key.token(claim(run));
    let path = |run: &Value, what: &str| format!("/api/v1/runs/{}/{what}", run["id"].as_str().unwrap());
    let fence = json!({"fence": run["fence"]});
    call_as(&server, &token, "POST", &path(run, "heartbeat"), fence.clone()).await.expect(200);
    call_as(&server, &token, "POST", &path(run, "log"), json!({"fence": run["fence"], "text": "x"})).await.expect(200);
    call_as(&server, &token, "POST", &path(other, "heartbeat"), json!({"fence": other["fence"]})).await.expect(401);
    call_as(&server, &token, "POST", &path(run, "heartbeat"), json!({"fence": run["fence"].as_i64().unwrap() + 1}))
        .await
        .expect(403);
    for (method, path) in [("GET", path(run, "log")), ("POST", path(run, "cancel")), ("POST", path(run, "release"))] {
        call_as(&server, &token, method, &path, Value::Null).await.expect(403);
    }
    call_as(&server, &token, "GET", "/api/v1/jobs", Value::Null).await.expect(401);
    let old = key.token(RunClaim { fence: Fence::from_raw(1), ..claim(run) });
    call_as(&server, &old, "POST", &path(run, "heartbeat"), json!({"fence": 1})).await.expect(409);
    let settle = json!({"fence": run["fence"], "outcome": "succeeded"});
    assert_eq!(call_as(&server, &token, "POST", &path(run, "settle"), settle).await.expect(200)["state"], "succeeded");
}

#[tokio::test]
async fn a_token_has_a_rate_of_requests() {
    let server = Server::required().await;
    let (busy, other) = (token(&server, 1, grant(Role::Viewer)).await, token(&server, 2, grant(Role::Viewer)).await);
    let mut limited = None;
    for _ in 0..2_000 {
        let answer = get(&server, &busy, "/api/v1/me").await;
        if answer.status.as_u16() == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("a limit");
    assert!(limited.text.contains("rate-limited") && limited.header("retry-after") == "1", "{}", limited.text);
    get(&server, &other, "/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn changes_and_denied_requests_are_audited_with_their_origin() {
    let server = Server::required().await;
    let editor = token(&server, 1, grant(Role::Editor)).await;
    let bearer = format!("Bearer {editor}");
    let headers = [("authorization", bearer.as_str()), ("everytick-request-id", "r-1")];
    server.call("POST", "/api/v1/jobs", &headers, queue_job("j", "q").to_string()).await.expect(201);
    server.call("GET", "/api/v1/tokens?secret=in-the-query", &headers, "").await.expect(403);
    get(&server, "etk_wrong", "/api/v1/jobs").await.expect(401);
    let rows = server.store.list_audit(TENANT, &AuditFilter::default(), None, 10).await.unwrap().items;
    let id = Some(TokenId::new(DbTime::EPOCH, [1; 10]));
    let of = |row: &everytick_store::AuditRecord| {
        (row.action.clone(), row.result.clone(), row.actor.clone(), row.token, row.ip.clone())
    };
    let here = Some("127.0.0.1".to_owned());
    let row = |action: &str, result: &str, actor: &str, token| {
        (action.to_owned(), result.to_owned(), actor.to_owned(), token, here.clone())
    };
    assert_eq!(of(&rows[0]), row("denied", "denied", "anonymous", None));
    assert_eq!(of(&rows[1]), row("denied", "denied", "token:t1", id));
    assert_eq!((rows[1].subject.as_str(), rows[1].request.as_deref()), ("GET /api/v1/tokens", Some("r-1")));
    assert_eq!(of(&rows[2]), row("create", "ok", "token:t1", id));
    assert_eq!(rows[2].request.as_deref(), Some("r-1"));
}

#[tokio::test]
async fn a_failed_change_of_a_credential_has_an_audit_row() {
    let server = Server::required().await;
    let admin = token(&server, 1, grant(Role::Admin)).await;
    let named = json!({"name": "t1", "role": "viewer"});
    call_as(&server, &admin, "POST", "/api/v1/tokens", named).await.expect(409);
    call_as(&server, &admin, "PUT", "/api/v1/secrets/s", json!({"value": "in-the-body", "hosts": []}))
        .await
        .expect(422);
    // A refused change of a job is no event of access.
    call_as(&server, &admin, "POST", "/api/v1/jobs", json!({"name": "j"})).await.expect(422);
    let rows = get(&server, &admin, "/api/v1/audit?result=failed").await.expect(200);
    let found: Vec<_> =
        rows["items"].as_array().unwrap().iter().map(|row| (&row["subject"], &row["detail"]["status"])).collect();
    assert_eq!(found, [(&json!("PUT /api/v1/secrets/s"), &json!(422)), (&json!("POST /api/v1/tokens"), &json!(409))]);
    assert!(!rows.to_string().contains("in-the-body"));
    assert_eq!((&rows["items"][0]["actor"], &rows["items"][0]["action"]), (&json!("token:t1"), &json!("failed")));
}

/// Creates a token, and searches everything that the process writes for its text.
#[tokio::test]
async fn no_token_is_stored_or_shown_again() {
    let server = Server::new().await;
    let made = server.post("/api/v1/tokens", json!({"name": "canary", "role": "admin"})).await.expect(201);
    let secret = made["token"].as_str().unwrap().to_owned();
    let mut texts = Vec::new();
    for path in ["/api/v1/me", "/api/v1/tokens", "/api/v1/audit", "/api/v1/jobs/none", "/api/v1/cluster", "/metrics"] {
        texts.push(get(&server, &secret, path).await);
    }
    let path = format!("/api/v1/tokens/{}", made["id"].as_str().unwrap());
    texts.push(get(&server, &secret, &path).await);
    texts.push(call_as(&server, &secret, "DELETE", &path, Value::Null).await);
    texts.push(get(&server, &secret, "/api/v1/jobs").await);
    for answer in &texts {
        let headers: &HeaderMap = &answer.headers;
        assert!(!answer.text.contains(&secret) && !format!("{headers:?}").contains(&secret), "{}", answer.text);
    }
    let random = &secret.as_bytes()[8..];
    for file in std::fs::read_dir(server.dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(random.len()).any(|window| window == random), "the database has the token");
    }
}
