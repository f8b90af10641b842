//! Exports of the audit trail, and the row of each kind of change.

use everytick_domain::{
    access::{Grant, Lifetime, Role, Scope, Token},
    ids::{TenantId, TokenId},
    time::{DbTime, Span},
};
use everytick_store::{Actor, Creator, NewToken, TokenKey};
use serde_json::{Value, json};

use crate::support::{Answer, Server, job, text_of};

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn an_export_has_every_row_in_the_order_of_its_ids_and_continues_after_an_id() {
    let server = Server::new().await;
    // More than one read.
    let jobs: String = (0..1_200).map(|n| format!("{}\n", job(&format!("j{n}")))).collect();
    let kind = [("content-type", "application/x-ndjson")];
    let made = server.call("POST", "/api/v1/jobs/batch", &kind, jobs).await;
    assert_eq!(made.status.as_u16(), 200, "{}", made.text);
    let answer = server.get("/api/v1/audit?format=ndjson").await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/x-ndjson"));
    let all = rows(&answer.text);
    assert_eq!(all.len(), 1_200);
    assert!(ids(&all).is_sorted_by(|a, b| a < b));
    // The rows are those of the list.
    let newest = server.get("/api/v1/audit?limit=1").await.expect(200);
    assert_eq!(newest["items"][0], all[1_199]);

    let last = all[1_199]["id"].as_i64().unwrap();
    let after = |id: i64| format!("/api/v1/audit?format=ndjson&after={id}");
    assert_eq!(server.get(&after(last)).await.text, "");
    server.store.note_denied(TenantId::DEFAULT, &Actor::local("b"), "denied", "GET /", "{}").await.unwrap();
    let more = rows(&server.get(&after(last)).await.text);
    assert_eq!((ids(&more), &more[0]["result"]), (vec![last + 1], &json!("denied")));
}

#[tokio::test]
async fn a_wrong_export_names_the_parameter() {
    let server = Server::new().await;
    server.make("j").await;
    for (query, status, field) in [
        ("format=csv", 400, "format"),
        ("after=1", 400, "after"),
        ("format=ndjson&after=-1", 400, "after"),
        ("format=ndjson&after=x", 400, "after"),
        ("format=ndjson&actor=a", 400, "actor"),
        ("format=ndjson&cursor=a", 400, "cursor"),
        ("format=ndjson&follow=true", 400, "follow"),
        // The reader has seen rows that the database no longer has.
        ("format=ndjson&after=2", 409, "after"),
    ] {
        let problem = server.get(&format!("/api/v1/audit?{query}")).await.expect(status);
        assert_eq!(problem["errors"][0]["field"], field, "{query}: {problem}");
    }
    assert_eq!(server.get("/api/v1/audit?format=json").await.expect(200)["items"][0]["action"], "create");
}

/// A caller with a token of this role, whose changes are looked up by the id of their request.
struct Changes<'s> {
    server: &'s Server,
    bearer: String,
    requests: u32,
}

impl<'s> Changes<'s> {
    async fn by(server: &'s Server, n: u8, role: Role) -> Self {
        let token = Token::from_random(&[n; 64]).unwrap();
        let queues = (role == Role::Worker).then(|| vec!["*".to_owned().try_into().unwrap()]);
        let grant = Grant { tenant: Some(TenantId::DEFAULT), role, scope: Scope { queues, ..Scope::default() } };
        let id = TokenId::new(DbTime::EPOCH, [n; 10]);
        let key = TokenKey { hash: token.hash(), id, prefix: token.prefix().to_owned() };
        let (name, lifetime) = (format!("t{n}"), Lifetime::For(Span::days(1)));
        let new = NewToken { key, name, grant, allowed_ips: Vec::new(), lifetime };
        server.store.create_token(&Actor::local("test"), &Creator::Open, new).await.unwrap();
        Self { server, bearer: format!("Bearer {}", token.expose()), requests: 0 }
    }

    async fn call(&mut self, method: &str, path: &str, body: &Value) -> (String, Answer) {
        self.requests += 1;
        let id = format!("r-{}", self.requests);
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut headers = vec![("authorization", self.bearer.as_str()), ("everytick-request-id", id.as_str())];
        if !body.is_null() {
            headers.push(("content-type", kind));
        }
        let answer = self.server.call(method, &format!("/api/v1/{path}"), &headers, text_of(body)).await;
        (id, answer)
    }

    /// Sends a change, and checks that it has exactly these rows, each with its author, address and request.
    async fn change(&mut self, method: &str, path: &str, body: Value, expected: &[&str]) -> Value {
        let (id, answer) = self.call(method, path, &body).await;
        assert!(answer.status.is_success(), "{method} {path}: {}", answer.text);
        let export = self.call("GET", "audit?format=ndjson", &Value::Null).await.1.text;
        let own: Vec<Value> = rows(&export).into_iter().filter(|row| row["request_id"] == id.as_str()).collect();
        let mut actions: Vec<&str> = own.iter().map(|row| row["action"].as_str().unwrap()).collect();
        actions.sort_unstable();
        assert_eq!(actions, expected, "{method} {path}");
        for row in &own {
            assert_eq!((&row["actor"], &row["actor_kind"]), (&json!("token:t1"), &json!("token")), "{row}");
            assert_eq!((&row["ip"], &row["result"]), (&json!("127.0.0.1"), &json!("ok")), "{row}");
            assert!(row["token_id"].is_string(), "{row}");
        }
        if answer.text.is_empty() { Value::Null } else { answer.json() }
    }
}

fn queue_job(name: &str, parents: Value) -> Value {
    let mut job = job(name);
    job["target"] = json!({"queue": {"name": "q"}});
    job["schedule"] = Value::Null;
    job["depends_on"] = parents;
    job
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_kind_of_change_has_its_rows_with_author_address_and_request() {
    let server = Server::required().await;
    let mut admin = Changes::by(&server, 1, Role::Admin).await;
    let mut worker = Changes::by(&server, 2, Role::Worker).await;

    // Jobs.
    admin.change("POST", "jobs", queue_job("a", json!([])), &["create"]).await;
    admin.change("POST", "jobs", queue_job("b", json!(["a"])), &["create"]).await;
    admin.change("POST", "jobs", queue_job("c", json!([])), &["create"]).await;
    let mut edited = queue_job("c", json!([]));
    edited["priority"] = json!(3);
    admin.change("PUT", "jobs/c", edited, &["edit"]).await;
    admin.change("PATCH", "jobs/c", json!({"priority": 4, "overlap": "allow"}), &["edit"]).await;
    admin.change("POST", "jobs/c/pause", json!({}), &["pause"]).await;
    admin.change("POST", "jobs/c/resume", json!({}), &["resume"]).await;

    // Runs.
    let run = id(&admin.change("POST", "jobs/c/trigger", json!({}), &["trigger"]).await);
    admin.change("POST", &format!("runs/{run}/cancel"), Value::Null, &["cancel"]).await;
    admin.change("POST", &format!("runs/{run}/rerun"), Value::Null, &["trigger"]).await;
    admin.change("POST", "jobs/c/cancel", json!({}), &["cancel"]).await;
    let run = admin.change("POST", "jobs/c/trigger", json!({}), &["trigger"]).await;
    let (_, claimed) = worker.call("POST", "queues/q/claim", &json!({"worker": "w", "limit": 10})).await;
    let claimed = claimed.expect(200)["runs"][0].clone();
    assert_eq!(claimed["id"], run["id"]);
    let report = json!({"fence": claimed["fence"], "outcome": "failed", "retry": false});
    worker.call("POST", &format!("runs/{}/settle", id(&run)), &report).await.1.expect(200);
    let from = json!({"from": run["scheduled_at"]});
    admin.change("POST", "jobs/c/redrive", from, &["redrive"]).await;

    // Flows: one row for the flow, and one for each cancelled run.
    let flow = id(&admin.change("POST", "jobs/a/trigger", json!({}), &["trigger"]).await);
    admin.change("POST", &format!("flows/{flow}/cancel"), json!({}), &["cancel", "cancel_flow"]).await;
    for flow in server.store.flows_with_steps(None, 100).await.unwrap() {
        server.store.advance_flow(flow).await.unwrap();
    }
    admin.change("POST", &format!("flows/{flow}/rerun"), json!({}), &["rerun_flow"]).await;

    // Backfills.
    let mut hourly = job("h");
    hourly["schedule"] = json!({"cron": "0 * * * *"});
    admin.change("POST", "jobs", hourly, &["create"]).await;
    let now = server.store.now().await.unwrap();
    let period = json!({"from": now.minus(Span::hours(20)).to_string(), "to": now.minus(Span::hours(15)).to_string()});
    let backfill = id(&admin.change("POST", "jobs/h/backfill", period, &["backfill"]).await);
    admin.change("POST", &format!("backfills/{backfill}/cancel"), Value::Null, &["cancel_backfill"]).await;
    admin.change("DELETE", "jobs/h", Value::Null, &["delete"]).await;

    // Calendars, queues, secrets and tokens.
    admin.change("PUT", "calendars/k", json!({"dates": ["2026-12-25"]}), &["set_calendar"]).await;
    admin.change("DELETE", "calendars/k", Value::Null, &["delete_calendar"]).await;
    admin.change("PUT", "queues/q", json!({"concurrency": 2}), &["limit"]).await;
    let signing = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDyzJ6Zr3qPX8=";
    let secret = json!({"value": signing, "hosts": ["example.org"]});
    admin.change("PUT", "secrets/s", secret, &["set_secret"]).await;
    admin.change("POST", "secrets/s/rotate", json!({}), &["rotate_secret"]).await;
    admin.change("DELETE", "secrets/s", Value::Null, &["delete_secret"]).await;
    let token = admin.change("POST", "tokens", json!({"name": "n", "role": "viewer"}), &["create_token"]).await;
    admin.change("POST", &format!("tokens/{}/rotate", id(&token)), json!({}), &["rotate_token"]).await;
    // A token made by rotation ends with the old one.
    admin.change("DELETE", &format!("tokens/{}", id(&token)), Value::Null, &["revoke_token", "revoke_token"]).await;

    let export = admin.call("GET", "audit?format=ndjson", &Value::Null).await.1.text;
    for secret in [signing, "whsec_", "etk_"] {
        assert!(!export.contains(secret), "{secret}");
    }
    // Nothing of what the callers only read, claimed or settled is a change.
    let changes = rows(&export).iter().filter(|row| row["actor"] == "token:t2").count();
    assert_eq!(changes, 0);
}

#[tokio::test]
async fn denied_requests_have_a_limited_number_of_rows_that_count_the_others() {
    let server = Server::required().await;
    let mut admin = Changes::by(&server, 1, Role::Admin).await;
    let mut viewer = Changes::by(&server, 2, Role::Viewer).await;
    for _ in 0..150 {
        viewer.call("DELETE", "jobs/none", &Value::Null).await.1.expect(403);
    }
    let denied = admin.call("GET", "audit?result=denied&limit=1000", &Value::Null).await.1.expect(200);
    let denied = denied["items"].as_array().unwrap().clone();
    // 60 at once, and one for each second that the requests take.
    assert!((60..150).contains(&denied.len()), "{}", denied.len());
    let unlisted: u64 = denied.iter().map(|row| row["detail"]["not_listed"].as_u64().unwrap()).sum();
    assert!(unlisted + denied.len() as u64 <= 150);
}
