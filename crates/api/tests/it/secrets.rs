//! Secrets: set, read, list, rotate, delete; the jobs that refer to them; and that no answer has a value.

use serde_json::{Value, json};

use crate::support::{Answer, Server, with};

const PATH: &str = "/api/v1/secrets/billing";
/// A value that occurs nowhere else.
const CANARY: &str = "canary-4f1d9b2e77";

fn definition() -> Value {
    json!({"value": CANARY, "hosts": ["api.example.org"], "description": "Token of the billing API"})
}

async fn put(server: &Server, path: &str, body: Value) -> Answer {
    server.call("PUT", path, &[], body.to_string()).await
}

/// A definition with the reference `{{ secrets.billing }}` in a header.
fn using(name: &str, host: &str) -> Value {
    let mut job = with("target.http.headers", json!({"authorization": "Bearer {{ secrets.billing }}"}));
    job["name"] = name.into();
    job["target"]["http"]["url"] = format!("https://{host}/hook").into();
    job
}

#[tokio::test]
async fn a_secret_is_created_replaced_read_listed_and_deleted() {
    let server = Server::new().await;
    let answer = put(&server, PATH, definition()).await;
    let mut made = answer.expect(201);
    assert_eq!((answer.header("etag"), answer.header("location")), ("\"1\"", PATH));
    for varying in ["created_at", "updated_at"] {
        assert!(made[varying].take().is_string(), "{varying}");
    }
    let expected = json!({
        "name": "billing", "version": 1, "hosts": ["api.example.org"], "kinds": ["http"],
        "description": "Token of the billing API", "jobs": 0, "previous_until": null,
        "created_at": null, "created_by": "local", "updated_at": null, "updated_by": "local",
    });
    assert_eq!(made, expected);
    server.post("/api/v1/jobs", using("j", "api.example.org")).await.expect(201);
    let answer = server.get(PATH).await;
    let read = answer.expect(200);
    assert_eq!((answer.header("etag"), &read["used_by"], &read["jobs"]), ("\"1\"", &json!(["j"]), &json!(1)));
    let mut again = read.clone();
    again["value"] = "another-value".into();
    assert_eq!(put(&server, PATH, again).await.expect(200)["version"], 2, "an answer can be sent back with a value");
    let list = server.get("/api/v1/secrets").await.expect(200);
    assert_eq!((&list["items"][0]["name"], &list["next_cursor"]), (&json!("billing"), &Value::Null));
    for (tag, status) in [("\"1\"", 412), ("\"1\", \"3\"", 412), ("\"1\", \"2\"", 409)] {
        server.call("DELETE", PATH, &[("if-match", tag)], "").await.expect(status);
    }
    let used = server.call("DELETE", PATH, &[], "").await.expect(409);
    assert!(used["detail"].as_str().unwrap().contains("the job j"), "{used}");
    server.call("DELETE", &format!("{PATH}?force=true"), &[], "").await.expect(200);
    let gone = server.get(PATH).await.expect(404);
    assert!(gone["detail"].as_str().unwrap().contains("no secret is named \"billing\""), "{gone}");
    server.call("PUT", PATH, &[("if-match", "\"1\"")], definition().to_string()).await.expect(412);
}

#[tokio::test]
async fn a_wrong_secret_is_refused_with_every_error_and_without_its_value() {
    let server = Server::new().await;
    let set = |field: &str, value: Value| {
        let mut body = definition();
        body[field] = value;
        body
    };
    let two = json!({"value": CANARY, "value_base64": "YWJj", "hosts": ["a.example"]});
    for (body, field) in [
        (json!({"hosts": ["a.example"]}), "value"),
        (set("value", json!("")), "value"),
        (set("value", json!("x".repeat(32 * 1024 + 1))), "value"),
        (two, "value_base64"),
        (json!({"value_base64": "!", "hosts": ["a.example"]}), "value_base64"),
        (set("hosts", json!([])), "hosts"),
        (set("hosts", json!(["https://a.example/"])), "hosts"),
        (set("hosts", json!(["*"])), "hosts"),
        (set("hosts", json!(vec!["a.example"; 51])), "hosts"),
        (set("kinds", json!([])), "kinds"),
        (set("kinds", json!(["queue"])), "kinds"),
        (set("description", json!("x".repeat(1025))), "description"),
        (set("valeu", json!(CANARY)), "valeu"),
    ] {
        let answer = put(&server, PATH, body).await;
        let problem = answer.expect(422);
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
        assert!(!answer.text.contains(CANARY), "{}", answer.text);
    }
    for name in ["a b", ".a", &"x".repeat(256)] {
        put(&server, &format!("/api/v1/secrets/{}", name.replace(' ', "%20")), definition()).await.expect(404);
    }
    assert_eq!(server.get("/api/v1/secrets").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_short_value_is_accepted_with_a_warning() {
    let server = Server::new().await;
    let made = put(&server, PATH, json!({"value": "1234567", "kinds": ["shell"]})).await.expect(201);
    assert_eq!(made["warnings"][0]["field"], "value", "{made}");
    assert_eq!(put(&server, PATH, json!({"value_base64": "/////////w==", "kinds": ["shell"]})).await.status, 200);
}

#[tokio::test]
async fn without_a_key_file_secrets_are_refused_and_jobs_contain_credentials_as_before() {
    let server = Server::without_keys().await;
    let refused = put(&server, PATH, definition()).await.expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("keygen"), "{refused}");
    let inline = with("target.http.headers", json!({"authorization": "Bearer x"}));
    let made = server.post("/api/v1/jobs", inline).await.expect(201);
    assert_eq!(made["target"]["http"]["headers"]["authorization"], "********");
}

#[tokio::test]
async fn a_definition_refers_only_to_secrets_that_it_may_use() {
    let server = Server::new().await;
    put(&server, PATH, definition()).await.expect(201);
    let made = server.post("/api/v1/jobs", using("good", "api.example.org")).await.expect(201);
    let header = "Bearer {{ secrets.billing }}";
    assert_eq!(made["target"]["http"]["headers"]["authorization"], header, "a reference is shown");
    let refused = server.post("/api/v1/jobs", using("other", "evil.example")).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "target.http.headers.authorization", "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("may not be sent to evil.example:443"), "{refused}");
    let mut edited = made.clone();
    edited["target"]["http"]["url"] = "https://evil.example/hook".into();
    put(&server, "/api/v1/jobs/good", edited).await.expect(422);
    let mut missing = using("missing", "api.example.org");
    missing["target"]["http"]["headers"]["authorization"] = "{{ secrets.none }}".into();
    let refused = server.post("/api/v1/jobs", missing).await.expect(422);
    assert!(refused["detail"].as_str().unwrap().contains("everytick secret set none"), "{refused}");
    let mut queue = using("queue", "api.example.org");
    queue["target"] = json!({"queue": {"name": "q"}});
    queue["payload"] = json!("{{ secrets.billing }}");
    assert_eq!(server.post("/api/v1/jobs", queue).await.expect(422)["errors"][0]["field"], "payload");
    let lines = [using("one", "api.example.org"), using("two", "evil.example")].map(|job| job.to_string()).join("\n");
    let headers = [("content-type", "application/x-ndjson")];
    let batch = server.call("POST", "/api/v1/jobs/batch", &headers, lines).await;
    let refused: Vec<bool> = batch.text.lines().map(|line| line.contains("may not be sent to")).collect();
    assert_eq!(refused.iter().filter(|refused| **refused).count(), 1, "{}", batch.text);
}

#[tokio::test]
async fn a_signing_key_is_rotated_and_another_value_is_not() {
    let server = Server::new().await;
    put(&server, PATH, definition()).await.expect(201);
    let rotate = format!("{PATH}/rotate");
    let refused = server.post(&rotate, Value::Null).await.expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("not a signing key"), "{refused}");
    let key = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDyzJ6Zr3qPX8=";
    put(&server, PATH, json!({"value": key, "hosts": ["api.example.org"]})).await.expect(200);
    let rotated = server.post(&rotate, json!({"overlap": "1h"})).await.expect(200);
    let new = rotated["value"].as_str().unwrap();
    assert!(new.starts_with("whsec_") && new != key, "{rotated}");
    assert!(rotated["previous_until"].is_string() && rotated["version"] == 3, "{rotated}");
    server.post(&rotate, json!({"overlap": "1h"})).await.expect(409);
    server.post(&rotate, json!({"overlap": "31d"})).await.expect(422);
    let at_once = server.post(&rotate, json!({"overlap": "0s"})).await.expect(200);
    assert_eq!(at_once["previous_until"], Value::Null);
    server.post("/api/v1/secrets/none/rotate", Value::Null).await.expect(404);
    let read = server.get(PATH).await;
    assert!(!read.text.contains("whsec_"), "{}", read.text);
}

#[tokio::test]
async fn no_answer_and_no_row_of_the_audit_trail_has_a_value() {
    let server = Server::new().await;
    put(&server, PATH, definition()).await.expect(201);
    server.post("/api/v1/jobs", using("j", "api.example.org")).await.expect(201);
    let mut answers = Vec::new();
    for path in [
        PATH,
        "/api/v1/secrets",
        "/api/v1/jobs",
        "/api/v1/jobs/j",
        "/api/v1/jobs/j/explain",
        "/api/v1/audit",
        "/metrics",
    ] {
        let answer = server.get(path).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
        answers.push(answer.text);
    }
    for body in [definition(), json!({"value": CANARY}), json!({"value": CANARY, "hosts": [1]})] {
        answers.push(put(&server, PATH, body).await.text);
    }
    answers.push(server.call("DELETE", PATH, &[], "").await.text);
    for text in answers {
        assert!(!text.contains(CANARY), "{text}");
    }
    let audit = server.get("/api/v1/audit?subject=billing").await.expect(200);
    assert_eq!(audit["items"][0]["action"], "set_secret", "{audit}");
}

#[tokio::test]
async fn a_server_may_refuse_new_credentials_in_jobs() {
    let server = Server::refusing_inline_secrets().await;
    put(&server, PATH, json!({"value": CANARY, "hosts": ["api.example.org"], "kinds": ["http", "shell"]})).await;
    let shell = json!({"shell": {"command": {"script": "true"}, "env": {"API_TOKEN": "x"}}});
    for (job, field) in [
        (with("target.http.headers", json!({"authorization": "Bearer x"})), "target.http.headers.authorization"),
        (with("target.http.secret", json!("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDyzJ6Zr3qPX8=")), "target.http.secret"),
        (with("target", shell), "target.shell.env.API_TOKEN"),
    ] {
        let refused = server.post("/api/v1/jobs", job).await.expect(422);
        assert_eq!(refused["errors"][0]["field"], field, "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("everytick secret set"), "{refused}");
    }
    server.post("/api/v1/jobs", with("target.http.headers", json!({"accept": "text/plain"}))).await.expect(201);
    server.post("/api/v1/jobs", using("j", "api.example.org")).await.expect(201);
}
