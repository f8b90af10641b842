//! Cancelling and redriving many runs, and the overlap policies that let runs wait.

use everytick_domain::{
    ids::RunId,
    partition::PartitionSet,
    time::{DbTime, Span},
};
use serde_json::{Value, json};

use crate::support::{Server, job};

async fn make(server: &Server, name: &str, policy: Value) -> Value {
    let mut definition = job(name);
    for (field, value) in policy.as_object().unwrap() {
        definition[field] = value.clone();
    }
    server.post("/api/v1/jobs", definition).await.expect(201)
}

async fn trigger(server: &Server, name: &str) -> Value {
    server.post(&format!("/api/v1/jobs/{name}/trigger"), Value::Null).await.expect(201)
}

/// A claimed run that was reported as failed, without a retry.
async fn failed(server: &Server, name: &str) -> Value {
    let run = trigger(server, name).await;
    let (lease, id) = (server.join().await, run["id"].as_str().unwrap().parse::<RunId>().unwrap());
    let claim = server.store.claim(&lease, &PartitionSet::all(256), &[id]).await.unwrap().remove(0);
    let report = json!({"fence": claim.fence.raw(), "outcome": "failed", "error": "no disk", "retry": false});
    server.post(&format!("/api/v1/runs/{id}/settle"), report).await.expect(200)
}

#[tokio::test]
async fn an_overlap_policy_is_returned_as_written_and_can_be_changed() {
    let server = Server::new().await;
    let queue = make(&server, "q", json!({"overlap": "queue"})).await;
    assert_eq!((&queue["queue_limit"], &queue["max_concurrent"]), (&json!(1), &json!(1)));
    let queue = make(&server, "r", json!({"overlap": "queue", "queue_limit": 3})).await;
    assert_eq!((&queue["overlap"], &queue["queue_limit"]), (&json!("queue"), &json!(3)));
    let previous = make(&server, "c", json!({"overlap": "cancel_previous", "max_concurrent": 1})).await;
    assert_eq!((&previous["overlap"], &previous["queue_limit"]), (&json!("cancel_previous"), &Value::Null));
    // A client can send an answer back. A patch to another policy must also remove the limit.
    let text = server.get("/api/v1/jobs/r").await.text;
    assert_eq!(server.call("PUT", "/api/v1/jobs/r", &[], text).await.expect(200)["queue_limit"], 3);
    let patch = json!({"overlap": "skip"}).to_string();
    let refused = server.call("PATCH", "/api/v1/jobs/r", &[], patch).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "queue_limit");
    let patch = json!({"overlap": "skip", "queue_limit": null}).to_string();
    assert_eq!(server.call("PATCH", "/api/v1/jobs/r", &[], patch).await.expect(200)["queue_limit"], Value::Null);
}

#[tokio::test]
async fn triggers_obey_the_overlap_policy() {
    let server = Server::new().await;
    make(&server, "q", json!({"overlap": "queue", "queue_limit": 2})).await;
    let mut states = Vec::new();
    for _ in 0..3 {
        states.push(trigger(&server, "q").await["state"].clone());
    }
    assert_eq!(states, ["waiting", "waiting", "skipped"]);
    make(&server, "c", json!({"overlap": "cancel_previous"})).await;
    for _ in 0..3 {
        assert_eq!(trigger(&server, "c").await["state"], "waiting");
    }
}

#[tokio::test]
async fn all_open_runs_of_a_job_are_cancelled_together() {
    let server = Server::new().await;
    make(&server, "q", json!({"overlap": "queue", "queue_limit": 2})).await;
    let runs = [trigger(&server, "q").await["id"].clone(), trigger(&server, "q").await["id"].clone()];
    let cancelled = server.post("/api/v1/jobs/q/cancel", Value::Null).await.expect(200);
    assert_eq!((&cancelled["job"], &cancelled["stopped"]), (&json!("q"), &json!([])));
    assert!(runs.iter().all(|run| cancelled["cancelled"].as_array().unwrap().contains(run)), "{cancelled}");
    assert_eq!(server.post("/api/v1/jobs/q/cancel", Value::Null).await.expect(200)["cancelled"], json!([]));
    server.post("/api/v1/jobs/missing/cancel", Value::Null).await.expect(404);
}

#[tokio::test]
async fn failed_runs_are_redriven_and_a_repeat_creates_nothing_more() {
    let server = Server::new().await;
    server.make("j").await;
    let failed = failed(&server, "j").await;
    let since = failed["scheduled_at"].clone();
    let page = server.get("/api/v1/runs?status=failed").await.expect(200);
    assert_eq!(page["items"][0]["id"], failed["id"]);

    let path = "/api/v1/jobs/j/redrive";
    let dry = server.post(path, json!({"since": since, "dry_run": true})).await.expect(200);
    assert_eq!((&dry["items"][0]["state"], &dry["items"][0]["made"]), (&Value::Null, &json!(false)));
    let first = server.post(path, json!({"since": since})).await.expect(200);
    let item = &first["items"][0];
    assert_eq!((&item["state"], &item["made"]), (&json!("waiting"), &json!(true)));
    assert_eq!((&item["failed"]["id"], &item["failed"]["error"]), (&failed["id"], &json!("no disk")));
    assert_eq!((&item["run"], &first["next_from"]), (&dry["items"][0]["run"], &Value::Null));
    let scheduled: DbTime = since.as_str().unwrap().parse().unwrap();
    let before = scheduled.minus(Span::seconds(1)).to_string();
    let none = server.post(path, json!({"from": before, "to": since})).await.expect(200);
    assert_eq!(none["items"], json!([]), "`to` is excluded");
    let after = scheduled.plus(Span::millis(1)).to_string();
    let again = server.post(path, json!({"from": since, "to": after, "limit": 1})).await.expect(200);
    assert_eq!((&again["items"][0]["run"], &again["items"][0]["made"]), (&item["run"], &json!(false)));
    let new = server.get(&format!("/api/v1/runs/{}", item["run"].as_str().unwrap())).await.expect(200);
    assert_eq!((&new["cause"], &new["scheduled_at"]), (&json!("request"), &since));
    let audit = server.get("/api/v1/audit?limit=1").await.expect(200);
    assert_eq!((&audit["items"][0]["action"], &audit["items"][0]["subject"]), (&json!("redrive"), &item["run"]));
}

/// A client of the previous release reads `next_since`.
#[tokio::test]
async fn a_partial_redrive_returns_the_start_of_the_next_one_under_both_names() {
    let server = Server::new().await;
    server.make("j").await;
    let runs = [failed(&server, "j").await, failed(&server, "j").await];
    let body = json!({"from": runs[0]["scheduled_at"], "limit": 1});
    let part = server.post("/api/v1/jobs/j/redrive", body).await.expect(200);
    assert_eq!((&part["next_from"], &part["next_since"]), (&runs[1]["scheduled_at"], &runs[1]["scheduled_at"]));
}

#[tokio::test]
async fn the_errors_of_a_redrive_request_name_their_fields() {
    let server = Server::new().await;
    server.make("j").await;
    let path = "/api/v1/jobs/j/redrive";
    for (body, field) in [
        (json!({}), "from"),
        (json!({"from": "yesterday"}), "from"),
        (json!({"since": "2020-01-01T00:00:00Z"}), "from"),
        (json!({"from": "2040-01-01T00:00:00Z", "to": "2040-01-01T00:00:00Z"}), "to"),
        (json!({"from": "2040-01-01T00:00:00Z", "to": "then"}), "to"),
        (json!({"since": "2040-01-01T00:00:00Z", "limit": 0}), "limit"),
        (json!({"since": "2040-01-01T00:00:00Z", "limit": 1001}), "limit"),
        (json!({"since": "2040-01-01T00:00:00Z", "all": true}), "all"),
    ] {
        let refused = server.post(path, body.clone()).await.expect(422);
        assert_eq!(refused["errors"][0]["field"], field, "{body}: {refused}");
    }
    server.post("/api/v1/jobs/missing/redrive", json!({"since": "2040-01-01T00:00:00Z"})).await.expect(404);
}
