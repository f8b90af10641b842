//! Definitions whose fields contradict each other: new ones are refused, stored ones stay editable, and doubtful ones get a
//! warning.

use everytick_store::NodeInfo;
use serde_json::{Value, json};

use crate::support::{Server, text_of, with};

/// The fields of the warnings in an answer.
fn warned(answer: &Value) -> Vec<&str> {
    let warnings = answer["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    warnings.iter().map(|warning| warning["field"].as_str().unwrap()).collect()
}

const JITTER: &str = r#"{"schedule": {"cron": "0 9,10 * * *", "jitter": "2h"}}"#;
const PRIVATE: &str = r#"{"target": {"http": {"url": "http://10.1.2.3/hook"}}}"#;

#[tokio::test]
async fn create_put_and_patch_answer_with_warnings_and_other_requests_do_not() {
    for (patch, field) in [(JITTER, "schedule.jitter"), (PRIVATE, "target.http.url")] {
        let server = Server::new().await;
        let patch: Value = serde_json::from_str(patch).unwrap();
        let (part, value) = patch.as_object().unwrap().iter().next().unwrap();
        let definition = with(part, value.clone());
        let made = server.post("/api/v1/jobs", definition.clone()).await.expect(201);
        assert_eq!(warned(&made), [field]);
        let put = server.call("PUT", "/api/v1/jobs/case", &[], text_of(&definition)).await.expect(200);
        assert_eq!(warned(&put), [field], "PUT");
        // An answer can be sent back as a definition, with its warnings.
        let again = server.call("PUT", "/api/v1/jobs/case", &[], text_of(&put)).await.expect(200);
        assert_eq!(warned(&again), [field], "PUT of an answer");
        let other = server.call("PATCH", "/api/v1/jobs/case", &[], r#"{"priority": 3}"#).await.expect(200);
        assert_eq!(warned(&other), [field], "PATCH of another field");
        assert!(server.get("/api/v1/jobs/case").await.expect(200).get("warnings").is_none());
        server.make("plain").await;
        let patched = server.call("PATCH", "/api/v1/jobs/plain", &[], text_of(&patch)).await.expect(200);
        assert_eq!(warned(&patched), [field], "PATCH");
    }
    let server = Server::new().await;
    assert!(server.make("plain").await.get("warnings").is_none());
}

#[tokio::test]
async fn each_line_of_a_batch_has_its_own_warnings() {
    let server = Server::new().await;
    let line = |name: &str, field: &str, value: Value| {
        let mut job = with(field, value);
        job["name"] = json!(name);
        job.to_string()
    };
    let body = [
        line("a", "schedule", json!({"cron": "0 9,10 * * *", "jitter": "2h"})),
        line("b", "priority", json!(99)),
        line("c", "priority", json!(3)),
        line("d", "target.http.url", json!("http://[fd00::1]/")),
        line("e", "misfire", json!({"late_after": "2m", "grace": "1m"})),
    ];
    let answer =
        server.call("POST", "/api/v1/jobs/batch", &[("content-type", "application/x-ndjson")], body.join("\n")).await;
    let lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let brief: Vec<_> = lines.iter().map(|line| (line["status"].as_u64().unwrap(), warned(line))).collect();
    assert_eq!(
        brief,
        [(201, vec!["schedule.jitter"]), (422, vec![]), (201, vec![]), (201, vec!["target.http.url"]), (422, vec![])]
    );
}

/// Whether a webhook to 10.1.2.3 gets a warning while nodes with these published capabilities are live.
async fn is_warned(nodes: &[Option<&str>]) -> bool {
    let server = Server::new().await;
    for (n, can) in nodes.iter().enumerate() {
        let node = NodeInfo { can: can.map(ToOwned::to_owned), ..NodeInfo::named(&format!("n{n}")) };
        server.join_as(&node, n as u128 + 1).await;
    }
    let made = server.post("/api/v1/jobs", with("target.http.url", json!("http://10.1.2.3/"))).await.expect(201);
    if let Some(warning) = made["warnings"].get(0) {
        let message = warning["message"].as_str().unwrap();
        assert!(message.contains("no node may call") && message.contains("10.1.2.3/32"), "{message}");
    }
    made.get("warnings").is_some()
}

#[tokio::test]
async fn a_private_address_gets_a_warning_unless_a_live_node_may_call_it() {
    const PUBLIC_ONLY: Option<&str> = Some(r#"{"shell":true,"webhook_ranges":[]}"#);
    const PRIVATE: Option<&str> = Some(r#"{"shell":false,"webhook_ranges":["10.0.0.0/8"]}"#);
    const NOT_PUBLISHED: Option<&str> = None;
    assert!(is_warned(&[]).await, "while no node is live, the settings of this server apply");
    assert!(is_warned(&[PUBLIC_ONLY]).await);
    assert!(!is_warned(&[PUBLIC_ONLY, PRIVATE]).await);
    assert!(!is_warned(&[PUBLIC_ONLY, NOT_PUBLISHED]).await);
}

#[tokio::test]
async fn an_edit_that_adds_a_contradiction_is_refused_and_one_that_removes_it_is_accepted() {
    let server = Server::new().await;
    server.make("j").await;
    let patch = async |body: &str| server.call("PATCH", "/api/v1/jobs/j", &[], body).await;
    patch(r#"{"payload": {"a": 1}}"#).await.expect(200);
    let problem = patch(r#"{"target": {"http": {"method": "GET"}}}"#).await.expect(422);
    assert_eq!(problem["errors"][0]["field"], "payload", "{problem}");
    patch(r#"{"target": {"http": {"method": "GET"}}, "payload": null}"#).await.expect(200);
    let problem = patch(r#"{"misfire": {"grace": "30s"}}"#).await.expect(422);
    assert_eq!(problem["errors"][0]["field"], "misfire.late_after", "{problem}");
    patch(r#"{"misfire": {"grace": "30s", "late_after": "30s"}}"#).await.expect(200);
}
