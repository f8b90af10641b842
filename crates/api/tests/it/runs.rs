//! Runs: trigger, read, watch, cancel, rerun, settle.

use axum::body::to_bytes;
use everytick_domain::ids::RunId;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{Server, request};

async fn claimed(server: &Server, name: &str) -> (String, i64) {
    server.make(name).await;
    let run = server.post(&format!("/api/v1/jobs/{name}/trigger"), Value::Null).await.expect(201);
    let lease = server.join().await;
    let id: RunId = run["id"].as_str().unwrap().parse().unwrap();
    let claim = server
        .store
        .claim(&lease, &everytick_domain::partition::PartitionSet::all(256), &[id])
        .await
        .unwrap()
        .remove(0);
    (id.to_string(), claim.fence.raw())
}

#[tokio::test]
async fn a_triggered_run_waits_and_a_second_one_is_skipped_unless_forced() {
    let server = Server::new().await;
    let made = server.make("j").await;
    let answer = server.post("/api/v1/jobs/j/trigger", json!({"payload": {"again": true}})).await;
    let run = answer.expect(201);
    assert_eq!(answer.header("location"), format!("/api/v1/runs/{}", run["id"].as_str().unwrap()));
    let mut rest = run.clone();
    for varying in ["id", "scheduled_at", "due_at"] {
        assert!(rest[varying].take().is_string(), "{varying}");
    }
    let expected = json!({
        "id": null, "scheduled_at": null, "due_at": null, "job": "j", "job_id": made["id"], "cause": "request",
        "state": "waiting", "attempt": 0, "lost": 0, "fence": 0, "node": null, "worker": null, "started_at": null,
        "finished_at": null, "duration_ms": null, "error": null, "output": null, "output_truncated_bytes": null,
        "skip_reason": null, "flow": null, "cancelled_by": null,
    });
    assert_eq!(rest, expected);
    let skipped = server.post("/api/v1/jobs/j/trigger", Value::Null).await.expect(201);
    assert_eq!((&skipped["state"], &skipped["skip_reason"]), (&json!("skipped"), &json!("overlap")));
    let forced = server.post("/api/v1/jobs/j/trigger", json!({"force": true})).await.expect(201);
    assert_eq!(forced["state"], "waiting");
    let page = server.get("/api/v1/jobs/j/runs?status=waiting").await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let page = server.get("/api/v1/runs?job=j&status=skipped,failed&limit=1").await.expect(200);
    assert_eq!(page["items"][0]["id"], skipped["id"]);
    assert_eq!(server.get("/api/v1/runs?to=2020-01-01T00:00:00Z").await.expect(200)["items"], json!([]));
    let job = server.get("/api/v1/jobs/j").await.expect(200);
    assert!(job["last_run"]["state"].is_string());
}

#[tokio::test]
async fn runs_come_in_pages_newest_first() {
    let server = Server::new().await;
    server.make("j").await;
    for _ in 0..7 {
        server.post("/api/v1/jobs/j/trigger", json!({"force": true})).await.expect(201);
    }
    let (mut seen, mut query) = (Vec::new(), "?limit=3".to_owned());
    loop {
        let page = server.get(&format!("/api/v1/runs{query}")).await.expect(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        query = format!("?limit=3&cursor={cursor}");
    }
    let mut sorted = seen.clone();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted.dedup();
    assert_eq!((seen.len(), &seen), (7, &sorted));
}

#[tokio::test]
async fn an_open_run_can_be_cancelled_and_an_ended_run_rerun() {
    let server = Server::new().await;
    server.make("j").await;
    let run = server.post("/api/v1/jobs/j/trigger", Value::Null).await.expect(201);
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    server.post(&format!("{path}/rerun"), Value::Null).await.expect(409);
    assert_eq!(server.post(&format!("{path}/cancel"), Value::Null).await.expect(200)["state"], "cancelled");
    let problem = server.post(&format!("{path}/cancel"), Value::Null).await.expect(409);
    assert!(problem["detail"].as_str().unwrap().contains("cancelled"));
    let again = server.post(&format!("{path}/rerun"), Value::Null).await.expect(201);
    assert_ne!(again["id"], run["id"]);
    assert_eq!((&again["state"], &again["cause"]), (&json!("waiting"), &json!("request")));
    assert_eq!(server.get(&path).await.expect(200)["state"], "cancelled", "a terminal state is final");
}

#[tokio::test]
async fn a_report_settles_only_with_the_fence_of_the_claim() {
    let server = Server::new().await;
    let (id, fence) = claimed(&server, "j").await;
    let path = format!("/api/v1/runs/{id}/settle");
    let stale = server.post(&path, json!({"fence": fence - 1, "outcome": "succeeded"})).await.expect(409);
    assert_eq!(stale["errors"][0]["field"], "fence");
    let settled =
        server.post(&path, json!({"fence": fence, "outcome": "succeeded", "output": "done"})).await.expect(200);
    assert_eq!((&settled["state"], &settled["output"]), (&json!("succeeded"), &json!("done")));
    server.post(&path, json!({"fence": fence, "outcome": "failed"})).await.expect(409);
    let log = server.get(&format!("/api/v1/runs/{id}/log")).await;
    assert_eq!((log.text.as_str(), log.header("content-type")), ("done", "text/plain; charset=utf-8"));
    let attempts = server.get(&format!("/api/v1/runs/{id}/attempts")).await.expect(200);
    assert_eq!((&attempts["items"][0]["attempt"], &attempts["items"][0]["outcome"]), (&json!(1), &json!("succeeded")));
}

#[tokio::test]
async fn a_reported_failure_waits_for_its_next_attempt() {
    let server = Server::new().await;
    let (id, fence) = claimed(&server, "j").await;
    let report = json!({"fence": fence, "outcome": "failed", "error": "no disk"});
    let run = server.post(&format!("/api/v1/runs/{id}/settle"), report).await.expect(200);
    assert_eq!((&run["state"], &run["error"]), (&json!("waiting"), &json!("no disk")));
    let (id, fence) = claimed(&server, "k").await;
    let report = json!({"fence": fence, "outcome": "failed", "error": "no disk", "retry": false});
    let run = server.post(&format!("/api/v1/runs/{id}/settle"), report).await.expect(200);
    assert_eq!(run["state"], "failed");
}

#[tokio::test]
async fn the_log_of_a_run_on_this_node_is_streamed_live() {
    let server = Server::new().await;
    let (id, _) = claimed(&server, "j").await;
    let log = server.live.open(id.parse().unwrap());
    log.push(b"first\nline ");
    let request = request("GET", &format!("/api/v1/runs/{id}/log"), &[], "");
    let response = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    log.push("é".as_bytes());
    drop(log);
    let text = String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap();
    let expected = "event: chunk\ndata: {\"text\":\"first\\nline \"}\n\n\
                event: chunk\ndata: {\"text\":\"é\"}\n\nevent: end\ndata: {\"state\":\"claimed\"}\n\n";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn deleting_with_cancel_returns_the_cancelled_runs() {
    let server = Server::new().await;
    let (id, _) = claimed(&server, "j").await;
    let deleted = server.call("DELETE", "/api/v1/jobs/j?cancel=true", &[], "").await.expect(200);
    assert_eq!(deleted["cancelled"], json!([id]));
    let path = format!("/api/v1/runs?job={}", deleted["id"].as_str().unwrap());
    let kept = server.get(&path).await.expect(200);
    assert_eq!((&kept["items"][0]["id"], &kept["items"][0]["state"]), (&json!(id), &json!("cancelled")));
}
