//! Tenants over HTTP: the operator manages them, and one of them reaches nothing of another, on every store.

use everytick_api::openapi;
use everytick_domain::{
    access::{Grant, Lifetime, Role, Scope, Token},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_store::{Actor, Creator, NewToken, TenantRef, TokenKey};
use serde_json::{Value, json};

use crate::support::{Answer, Server, job, text_of};

/// A text in every field with a free text of the first tenant.
const CANARY: &str = "canary-of-the-first-tenant";

/// One caller: a token, and the tenant in which an instance token acts.
#[derive(Clone)]
struct Caller {
    token: String,
    within: Option<&'static str>,
}

impl Caller {
    async fn call(&self, server: &Server, method: &str, path: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(self.within.map(|tenant| ("everytick-tenant", tenant)));
        if path.ends_with("/batch") {
            headers.push(("content-type", "application/x-ndjson"));
        }
        server.call(method, path, &headers, text_of(&body)).await
    }
    async fn get(&self, server: &Server, path: &str) -> Answer {
        self.call(server, "GET", path, Value::Null).await
    }
    async fn post(&self, server: &Server, path: &str, body: Value) -> Answer {
        self.call(server, "POST", path, body).await
    }
    fn within(&self, tenant: &'static str) -> Self {
        Self { within: Some(tenant), ..self.clone() }
    }
}

/// Creates a token without a server. Each token needs its own number.
async fn caller(server: &Server, n: u8, tenant: Option<TenantId>, role: Role) -> Caller {
    let token = Token::from_random(&[n; 64]).unwrap();
    let key =
        TokenKey { hash: token.hash(), id: TokenId::new(DbTime::EPOCH, [n; 10]), prefix: token.prefix().to_owned() };
    let queues = (role == Role::Worker).then(|| vec!["*".to_owned().try_into().unwrap()]);
    let grant = Grant { tenant, role, scope: Scope { queues, ..Scope::default() } };
    let lifetime = Lifetime::For(Span::days(90));
    let new = NewToken { key, name: format!("t{n}"), grant, allowed_ips: Vec::new(), lifetime };
    server.store.create_token(&Actor::local("test"), &Creator::Open, new).await.unwrap();
    Caller { token: token.expose().to_owned(), within: None }
}

async fn operator(server: &Server) -> Caller {
    caller(server, 1, None, Role::Instance).await
}

async fn create(server: &Server, operator: &Caller, body: Value) -> TenantId {
    let made = operator.post(server, "/api/v1/tenants", body).await.expect(201);
    let name = TenantRef::Name(made["name"].as_str().unwrap().to_owned());
    server.store.get_tenant(&name).await.unwrap().id
}

#[tokio::test]
async fn the_operator_creates_changes_suspends_resumes_and_deletes_a_tenant() {
    let server = Server::required().await;
    let operator = operator(&server).await;
    let body = json!({"name": "a", "quotas": {"jobs": 1}, "egress": {"hosts": ["*.example.org"], "https_only": true}});
    let made = operator.post(&server, "/api/v1/tenants", body.clone()).await;
    assert_eq!(made.header("location"), "/api/v1/tenants/a");
    let made = made.expect(201);
    assert_eq!((&made["state"], &made["work"], &made["shell"]), (&json!("active"), &Value::Null, &json!(false)));
    assert_eq!((&made["quotas"], &made["own_quotas"]), (&json!({"jobs": 1}), &json!({})));
    assert_eq!(made["egress"], json!({"hosts": ["*.example.org"], "https_only": true}));
    operator.post(&server, "/api/v1/tenants", body).await.expect(409);
    assert_eq!(operator.get(&server, "/api/v1/tenants/a").await.expect(200), made);
    operator.get(&server, "/api/v1/tenants/b").await.expect(404);
    let page = operator.get(&server, "/api/v1/tenants?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["name"], "a");
    let next = page["next_cursor"].as_str().unwrap();
    let page = operator.get(&server, &format!("/api/v1/tenants?cursor={next}")).await.expect(200);
    assert_eq!((&page["items"][0]["name"], &page["next_cursor"]), (&json!("default"), &Value::Null));
    let patch = json!({"shell": true, "quotas": {"tokens": 5, "min_interval": "1m"}});
    let changed = operator.call(&server, "PATCH", "/api/v1/tenants/a", patch).await.expect(200);
    assert_eq!((&changed["shell"], &changed["quotas"]), (&json!(true), &json!({"tokens": 5, "min_interval": "1m"})));
    assert_eq!(changed["egress"], made["egress"], "unchanged");
    operator.call(&server, "DELETE", "/api/v1/tenants/a", Value::Null).await.expect(409);
    let suspended = operator.post(&server, "/api/v1/tenants/a/suspend", json!({"cancel": true})).await.expect(200);
    assert_eq!((&suspended["state"], &suspended["work"]), (&json!("suspended"), &json!("pause_and_cancel")));
    let resumed = operator.post(&server, "/api/v1/tenants/a/resume", Value::Null).await.expect(200);
    assert_eq!((&resumed["state"], &resumed["suspended_at"]), (&json!("active"), &Value::Null));
    operator.post(&server, "/api/v1/tenants/a/suspend", Value::Null).await.expect(200);
    let early = operator.call(&server, "DELETE", "/api/v1/tenants/a", Value::Null).await.expect(409);
    assert_eq!(early["errors"][0]["field"], "force", "{early}");
    let deleted = operator.call(&server, "DELETE", "/api/v1/tenants/a?force=true", Value::Null).await.expect(200);
    assert_eq!(deleted["state"], "deleting");
    operator.post(&server, "/api/v1/tenants/default/suspend", Value::Null).await.expect(200);
    operator.call(&server, "DELETE", "/api/v1/tenants/default?force=true", Value::Null).await.expect(409);
}

#[tokio::test]
async fn wrong_fields_of_a_tenant_are_named() {
    let server = Server::required().await;
    let operator = operator(&server).await;
    for (body, field) in [
        (json!({"name": "a b"}), "name"),
        (json!({"name": "a", "quotas": {"jobs": 2_000_000_000}}), "quotas.jobs"),
        (json!({"name": "a", "quotas": {"min_interval": "1ms"}}), "quotas.min_interval"),
        (json!({"name": "a", "egress": {"hosts": ["a b"]}}), "egress.hosts"),
        (json!({"name": "a", "egress": {"ports": ["0"]}}), "egress.ports"),
    ] {
        let problem = operator.post(&server, "/api/v1/tenants", body.clone()).await.expect(422);
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
    }
    for body in [json!({"name": "a", "tenant": "b"}), json!({"name": "a", "quotas": {"runs": 1}})] {
        operator.post(&server, "/api/v1/tenants", body).await.expect(422);
    }
    // The tenant comes from the credential alone.
    let mut body = job("x");
    body["tenant"] = json!("a");
    operator.within("default").post(&server, "/api/v1/jobs", body).await.expect(422);
    operator.within("default").get(&server, "/api/v1/jobs?tenant=a").await.expect(400);
}

#[tokio::test]
async fn a_suspended_tenant_gets_403_but_reports_on_its_claims() {
    let server = Server::required().await;
    let operator = operator(&server).await;
    let tenant = create(&server, &operator, json!({"name": "a"})).await;
    let (admin, worker) =
        (caller(&server, 2, Some(tenant), Role::Admin).await, caller(&server, 3, Some(tenant), Role::Worker).await);
    let body = json!({"name": "q", "target": {"queue": {"name": "mail"}}});
    admin.post(&server, "/api/v1/jobs", body).await.expect(201);
    for _ in 0..2 {
        admin.post(&server, "/api/v1/jobs/q/trigger", json!({"force": true})).await.expect(201);
    }
    let claim = json!({"worker": "w", "limit": 1});
    let claimed = worker.post(&server, "/api/v1/queues/mail/claim", claim.clone()).await.expect(200);
    let (run, fence) = (claimed["runs"][0]["id"].as_str().unwrap(), claimed["runs"][0]["fence"].clone());
    operator.post(&server, "/api/v1/tenants/a/suspend", Value::Null).await.expect(200);
    for (caller, method, path, body) in [
        (&admin, "GET", "/api/v1/jobs", Value::Null),
        (&admin, "GET", "/api/v1/me", Value::Null),
        (&admin, "POST", "/api/v1/jobs/q/resume", Value::Null),
        (&admin, "PATCH", "/api/v1/tenant", json!({"quotas": {"jobs": 1}})),
        (&operator.within("a"), "GET", "/api/v1/jobs", Value::Null),
        (&worker, "POST", "/api/v1/queues/mail/claim", claim),
    ] {
        let problem = caller.call(&server, method, path, body).await.expect(403);
        assert_eq!(problem["type"], "urn:everytick:problem:tenant-suspended", "{method} {path}: {problem}");
    }
    operator.within("default").get(&server, "/api/v1/jobs").await.expect(200);
    let report = |more: Value| {
        let mut body = json!({"fence": fence});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let of = |what: &str| format!("/api/v1/runs/{run}/{what}");
    worker.post(&server, &of("heartbeat"), report(json!({}))).await.expect(200);
    worker.post(&server, &of("log"), report(json!({"text": "line"}))).await.expect(200);
    worker.post(&server, &of("settle"), report(json!({"outcome": "succeeded"}))).await.expect(200);
    operator.post(&server, "/api/v1/tenants/a/resume", Value::Null).await.expect(200);
    assert_eq!(admin.get(&server, &format!("/api/v1/runs/{run}")).await.expect(200)["state"], "succeeded");
}

#[tokio::test]
async fn quotas_rules_and_commands_limit_what_a_tenant_defines() {
    let server = Server::required().await;
    let operator = operator(&server).await;
    let body = json!({"name": "a", "quotas": {"jobs": 2, "calendars": 0}, "egress": {"hosts": ["*.example.org"]}});
    let tenant = create(&server, &operator, body).await;
    let admin = caller(&server, 2, Some(tenant), Role::Admin).await;
    let http = |name: &str, url: &str| json!({"name": name, "target": {"http": {"url": url}}});
    let refused = async |body: Value, field: &str| {
        let problem = admin.post(&server, "/api/v1/jobs", body).await.expect(422);
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    };
    refused(json!({"name": "s", "target": {"shell": {"command": {"argv": ["/bin/true"]}}}}), "target.shell").await;
    refused(http("x", "https://example.net/"), "target.http.url").await;
    admin.post(&server, "/api/v1/jobs", http("x", "https://api.example.org/")).await.expect(201);
    let own =
        json!({"egress": {"hosts": ["hooks.example.org", "example.net"]}, "quotas": {"jobs": 9, "min_interval": "1m"}});
    let narrowed = admin.call(&server, "PATCH", "/api/v1/tenant", own).await.expect(200);
    assert_eq!(narrowed["own_quotas"], json!({"jobs": 9, "min_interval": "1m"}));
    refused(http("y", "https://api.example.org/"), "target.http.url").await;
    refused(http("y", "https://example.net/"), "target.http.url").await;
    let mut every = http("y", "https://hooks.example.org/");
    every["schedule"] = json!({"every": "30s"});
    refused(every.clone(), "schedule.every").await;
    every["schedule"] = json!({"every": "1m"});
    admin.post(&server, "/api/v1/jobs", every).await.expect(201);
    // An edit that leaves the target alone is accepted.
    admin.call(&server, "PATCH", "/api/v1/jobs/x", json!({"description": "d"})).await.expect(200);
    let full = admin.post(&server, "/api/v1/jobs", http("z", "https://hooks.example.org/")).await.expect(409);
    assert_eq!(full["type"], "urn:everytick:problem:quota-reached");
    assert!(full["detail"].as_str().unwrap().contains("jobs"), "{full}");
    let calendar = json!({"timezone": "UTC", "dates": ["2026-12-25"]});
    let full = admin.call(&server, "PUT", "/api/v1/calendars/c", calendar).await.expect(409);
    assert_eq!(full["type"], "urn:everytick:problem:quota-reached");
    admin.call(&server, "PATCH", "/api/v1/tenant", json!({"shell": true})).await.expect(422);
    let allow = json!({"shell": true, "quotas": {"jobs": 3}});
    operator.call(&server, "PATCH", "/api/v1/tenants/a", allow).await.expect(200);
    let shell = json!({"name": "s", "target": {"shell": {"command": {"argv": ["/bin/true"]}}}});
    admin.post(&server, "/api/v1/jobs", shell).await.expect(201);
}

#[tokio::test]
async fn an_instance_token_creates_the_tokens_of_any_tenant() {
    let server = Server::required().await;
    let operator = operator(&server).await;
    create(&server, &operator, json!({"name": "a"})).await;
    let new = json!({"name": "ops", "role": "admin"});
    let made = operator.within("a").post(&server, "/api/v1/tokens", new).await.expect(201);
    assert_eq!(made["tenant"], "a");
    let admin = Caller { token: made["token"].as_str().unwrap().to_owned(), within: None };
    assert_eq!(admin.get(&server, "/api/v1/me").await.expect(200)["tenant"], "a");
    let own = admin.get(&server, "/api/v1/tokens").await.expect(200);
    assert_eq!(own["items"].as_array().unwrap().len(), 1, "{own}");
    operator.within("b").get(&server, "/api/v1/jobs").await.expect(404);
    admin.within("default").get(&server, "/api/v1/jobs").await.expect(403);
    let id = made["id"].as_str().unwrap();
    operator.within("default").get(&server, &format!("/api/v1/tokens/{id}")).await.expect(404);
    operator.post(&server, "/api/v1/tenants/a/suspend", Value::Null).await.expect(200);
    operator.call(&server, "DELETE", "/api/v1/tenants/a?force=true", Value::Null).await.expect(200);
    admin.get(&server, "/api/v1/jobs").await.expect(401);
}

#[tokio::test]
async fn a_cursor_of_another_tenant_is_refused() {
    let server = Server::required().await;
    let operator = operator(&server).await;
    let tenant = create(&server, &operator, json!({"name": "a"})).await;
    let (own, other) = (
        caller(&server, 2, Some(TenantId::DEFAULT), Role::Admin).await,
        caller(&server, 3, Some(tenant), Role::Admin).await,
    );
    for name in ["a", "b"] {
        own.post(&server, "/api/v1/jobs", job(name)).await.expect(201);
        other.post(&server, "/api/v1/jobs", job(name)).await.expect(201);
    }
    let page = own.get(&server, "/api/v1/jobs?limit=1").await.expect(200);
    let path = format!("/api/v1/jobs?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    own.get(&server, &path).await.expect(200);
    let problem = other.get(&server, &path).await.expect(400);
    assert_eq!(problem["errors"][0]["field"], "cursor");
}

#[tokio::test]
async fn no_route_shows_one_tenant_anything_of_another_on_sqlite() {
    no_route_shows_anything_of_another_tenant(Server::required().await).await;
}

#[tokio::test]
async fn no_route_shows_one_tenant_anything_of_another_on_postgresql() {
    let (server, _database) = Server::required_on_postgres().await;
    no_route_shows_anything_of_another_tenant(server).await;
}

/// What a route of the first tenant names.
struct Named {
    job: String,
    run: String,
    claimed: String,
    flow: String,
    backfill: String,
    token: String,
}

/// Fills the first tenant: each kind of object, with the canary in every text.
async fn fill(server: &Server, admin: &Caller, worker: &Caller) -> Named {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let define = |name: &str, target: Value| {
        json!({"name": name, "description": CANARY, "labels": {"k": CANARY}, "payload": {"p": CANARY}, "target": target,
               "overlap": "allow"})
    };
    let http = json!({"http": {"url": format!("https://{CANARY}.example.org/{CANARY}"), "headers": {"x-a": CANARY}}});
    let made = admin.post(server, "/api/v1/jobs", define("canary-job", http.clone())).await.expect(201);
    let mut child = define("canary-child", http);
    child["depends_on"] = json!([{"job": "canary-job"}]);
    admin.post(server, "/api/v1/jobs", child).await.expect(201);
    admin
        .post(server, "/api/v1/jobs", define("canary-queued", json!({"queue": {"name": "canary-queue"}})))
        .await
        .expect(201);
    let trigger = async |job: &str| {
        let path = format!("/api/v1/jobs/{job}/trigger");
        text(&admin.post(server, &path, json!({"payload": {"t": CANARY}})).await.expect(201)["id"])
    };
    let run = trigger("canary-job").await;
    trigger("canary-queued").await;
    let claim = json!({"worker": CANARY, "limit": 1});
    let claims = worker.post(server, "/api/v1/queues/canary-queue/claim", claim).await.expect(200);
    let (claimed, fence) = (text(&claims["runs"][0]["id"]), claims["runs"][0]["fence"].clone());
    let log = json!({"fence": fence, "text": CANARY});
    worker.post(server, &format!("/api/v1/runs/{claimed}/log"), log).await.expect(200);
    let calendar = json!({"timezone": "UTC", "dates": ["2026-12-25"]});
    admin.call(server, "PUT", "/api/v1/calendars/canary-calendar", calendar).await.expect(201);
    let secret = json!({"value": CANARY, "hosts": ["example.org"], "description": CANARY});
    admin.call(server, "PUT", "/api/v1/secrets/canary-secret", secret).await.expect(201);
    admin.call(server, "PUT", "/api/v1/queues/canary-queue", json!({"concurrency": 3})).await.expect(200);
    let mut ticks = define("canary-ticks", json!({"queue": {"name": "canary-queue"}}));
    ticks["schedule"] = json!({"every": "1s"});
    admin.post(server, "/api/v1/jobs", ticks).await.expect(201);
    let token = json!({"name": CANARY, "role": "viewer"});
    let token = text(&admin.post(server, "/api/v1/tokens", token).await.expect(201)["id"]);
    let now: i64 = server.store.now().await.unwrap().millis();
    let at = |millis: i64| DbTime::from_millis(millis).to_string();
    let past = json!({"from": at(now - 60_000), "to": at(now + 1), "payload": {"b": CANARY}});
    let answer = admin.post(server, "/api/v1/jobs/canary-ticks/backfill", past).await;
    // The job may be too young to have a tick in the past.
    let backfill = match answer.status.as_u16() {
        201 => text(&answer.json()["id"]),
        _ => TokenId::new(DbTime::EPOCH, [1; 10]).to_string(),
    };
    Named { job: text(&made["id"]), flow: run.clone(), run, claimed, backfill, token }
}

async fn no_route_shows_anything_of_another_tenant(server: Server) {
    let operator = operator(&server).await;
    let (a, b) = (
        create(&server, &operator, json!({"name": "canary-tenant"})).await,
        create(&server, &operator, json!({"name": "b"})).await,
    );
    let callers = [caller(&server, 2, Some(b), Role::Admin).await, caller(&server, 3, Some(b), Role::Worker).await];
    let (admin, worker) =
        (caller(&server, 4, Some(a), Role::Admin).await, caller(&server, 5, Some(a), Role::Worker).await);
    let named = fill(&server, &admin, &worker).await;
    let document = serde_json::to_value(openapi()).unwrap();
    let mut probed = 0;
    for (route, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            if item.get(method).is_none() || !route.starts_with("/api/v1/") {
                continue;
            }
            for path in paths(route, &named) {
                for caller in &callers {
                    let body = body(route, method, &named);
                    let answer = caller.call(&server, &method.to_uppercase(), &path, body).await;
                    let (status, text) = (answer.status.as_u16(), answer.text.replace(&path, ""));
                    let echoed = text.replace("canary-job", "").replace("canary-queue", "");
                    assert!(!text.contains(CANARY), "{method} {path}: {text}");
                    assert_ne!(status, 500, "{method} {path}: {text}");
                    // A queue is a name that every tenant may use.
                    let names_an_object = route.contains('{') && !route.contains("{queue}") && method != "put";
                    assert!(!names_an_object || (400..500).contains(&status), "{method} {path}: {status} {text}");
                    if status < 300 {
                        assert!(!echoed.contains("canary"), "{method} {path}: {text}");
                    }
                    probed += 1;
                }
            }
        }
    }
    assert!(probed > 150, "{probed}");
    // Searches and streams.
    for path in [
        "/api/v1/jobs?q=canary".to_owned(),
        format!("/api/v1/jobs?label=k={CANARY}"),
        "/api/v1/runs?status=waiting".to_owned(),
        format!("/api/v1/runs?label=k={CANARY}"),
        format!("/api/v1/audit?subject={}", named.job),
        "/api/v1/audit?actor=token:t4".to_owned(),
    ] {
        let answer = callers[0].get(&server, &path).await;
        assert!(!answer.text.contains("\"name\""), "{path}: {}", answer.text);
        assert!(answer.status.as_u16() == 404 || answer.json()["items"] == json!([]), "{path}: {}", answer.text);
    }
    // The operator's metrics name no tenant.
    assert!(!operator.get(&server, "/metrics").await.text.contains("canary"));
    // Nothing of the first tenant has changed.
    let job = admin.get(&server, "/api/v1/jobs/canary-job").await.expect(200);
    assert_eq!((&job["version"], &job["paused"]), (&json!(1), &Value::Null), "{job}");
    assert_eq!(admin.get(&server, &format!("/api/v1/runs/{}", named.claimed)).await.expect(200)["state"], "claimed");
    assert_eq!(admin.get(&server, &format!("/api/v1/runs/{}", named.run)).await.expect(200)["state"], "waiting");
    admin.get(&server, "/api/v1/calendars/canary-calendar").await.expect(200);
    admin.get(&server, "/api/v1/secrets/canary-secret").await.expect(200);
    admin.get(&server, &format!("/api/v1/tokens/{}", named.token)).await.expect(200);
    let queue = admin.get(&server, "/api/v1/queues/canary-queue").await.expect(200);
    assert_eq!(queue["concurrency"], 3, "{queue}");
}

/// The path of a route with the names and ids of the first tenant.
fn paths(route: &str, named: &Named) -> Vec<String> {
    let ids: Vec<&str> = match route {
        _ if route.starts_with("/api/v1/jobs/{job}") => vec!["canary-job", &named.job, &named.job[..18]],
        _ if route.starts_with("/api/v1/runs/{id}") => vec![&named.run, &named.claimed, &named.run[..23]],
        _ if route.starts_with("/api/v1/flows/{id}") => vec![&named.flow],
        _ if route.starts_with("/api/v1/backfills/{id}") => vec![&named.backfill],
        _ if route.starts_with("/api/v1/tokens/{id}") => vec![&named.token],
        _ if route.starts_with("/api/v1/queues/{queue}") => vec!["canary-queue"],
        _ if route.starts_with("/api/v1/calendars/{name}") => vec!["canary-calendar"],
        _ if route.starts_with("/api/v1/secrets/{name}") => vec!["canary-secret"],
        _ if route.starts_with("/api/v1/tenants/{name}") => vec!["canary-tenant"],
        _ => vec![""],
    };
    let fill = |id: &str| {
        let before = route.split('{').next().unwrap_or_default();
        let after = route.split('}').nth(1).unwrap_or_default();
        if route.contains('{') { format!("{before}{id}{after}") } else { route.to_owned() }
    };
    ids.into_iter().map(fill).collect()
}

/// A valid body for a route.
fn body(route: &str, method: &str, named: &Named) -> Value {
    match (method, route.rsplit('/').next().unwrap_or_default()) {
        ("get" | "delete", _) => Value::Null,
        (_, "claim") => json!({"worker": "w", "limit": 5}),
        (_, "leave") => json!({"worker": "w"}),
        (_, "heartbeat" | "release") => json!({"fence": 1}),
        (_, "log") => json!({"fence": 1, "text": "forged"}),
        (_, "settle") if route.contains("{queue}") => {
            json!({"runs": [{"id": named.claimed, "fence": 1, "outcome": "succeeded"}]})
        }
        (_, "settle") => json!({"fence": 1, "outcome": "succeeded"}),
        (_, "backfill") => json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}),
        ("put", _) if route.contains("jobs") => job("canary-job"),
        ("patch", _) if route.contains("jobs") => json!({"description": "changed"}),
        _ => Value::Null,
    }
}
