//! Queues and workers: claim, heartbeat, log, settle, wait, limits.

use std::{sync::Arc, time::Duration};

use everytick_domain::time::DbTime;
use serde_json::{Value, json};

use crate::support::{Server, job, text_of};

/// A job whose runs wait in the queue `q`.
fn queued(name: &str) -> Value {
    let mut job = job(name);
    job["target"] = json!({"queue": {"name": "q"}});
    job["overlap"] = json!("allow");
    job
}

async fn with_runs(count: usize) -> Server {
    let server = Server::new().await;
    server.post("/api/v1/jobs", queued("j")).await.expect(201);
    for n in 0..count {
        server.post("/api/v1/jobs/j/trigger", json!({"payload": {"n": n}})).await.expect(201);
    }
    server
}

async fn claim(server: &Server, body: Value) -> Vec<Value> {
    let answer = server.post("/api/v1/queues/q/claim", body).await.expect(200);
    answer["runs"].as_array().unwrap().clone()
}

async fn claim_one(server: &Server) -> (String, i64, Value) {
    let run = claim(server, json!({"worker": "w"})).await.remove(0);
    (format!("/api/v1/runs/{}", run["id"].as_str().unwrap()), run["fence"].as_i64().unwrap(), run)
}

#[tokio::test]
async fn a_worker_claims_extends_logs_and_settles_a_run() {
    let server = with_runs(1).await;
    let (path, fence, run) = claim_one(&server).await;
    assert_eq!((&run["job"], &run["attempt"], &run["payload"]), (&json!("j"), &json!(1), &json!({"n": 0})));
    assert!(run["lease_until"].is_string() && run["timeout_at"].is_string() && run["beat_every"] == "10s");
    let read = server.get(&path).await.expect(200);
    assert_eq!((&read["state"], &read["worker"], &read["node"]), (&json!("claimed"), &json!("w"), &Value::Null));
    assert!(claim(&server, json!({"worker": "other"})).await.is_empty(), "only one worker gets a run");

    let beat = server.post(&format!("{path}/heartbeat"), json!({"fence": fence})).await.expect(200);
    let until = |answer: &Value| answer["lease_until"].as_str().unwrap().parse::<DbTime>().unwrap();
    assert!(until(&beat) >= until(&run) && beat["cancelled"] == false);
    server.post(&format!("{path}/log"), json!({"fence": fence, "text": "half\n"})).await.expect(200);
    server.post(&format!("{path}/log"), json!({"fence": fence, "text": "whole\n"})).await.expect(200);
    assert_eq!(server.get(&format!("{path}/log")).await.text, "half\nwhole\n");

    let settled = server.post(&format!("{path}/settle"), json!({"fence": fence, "outcome": "succeeded"})).await;
    let settled = settled.expect(200);
    assert_eq!((&settled["state"], &settled["output"]), (&json!("succeeded"), &json!("half\nwhole\n")));
    let attempts = server.get(&format!("{path}/attempts")).await.expect(200);
    assert_eq!(attempts["items"][0]["worker"], "w");
}

#[tokio::test]
async fn a_run_keeps_the_log_and_the_output_of_its_worker() {
    let server = with_runs(3).await;
    for outcome in ["succeeded", "failed"] {
        let (path, fence, _) = claim_one(&server).await;
        server.post(&format!("{path}/log"), json!({"fence": fence, "text": "half"})).await.expect(200);
        let settle = json!({"fence": fence, "outcome": outcome, "output": "done", "retry": false});
        for _ in 0..2 {
            let run = server.post(&format!("{path}/settle"), settle.clone()).await.expect(200);
            let stored = (&run["state"], &run["output"], &run["output_truncated_bytes"]);
            assert_eq!(stored, (&json!(outcome), &json!("half\ndone"), &json!(0)));
        }
        let other = json!({"fence": fence, "outcome": outcome, "output": "other", "retry": false});
        server.post(&format!("{path}/settle"), other).await.expect(409);
    }
    let (path, fence, _) = claim_one(&server).await;
    let text = "x".repeat(65_536);
    let log = json!({"fence": fence, "text": text, "missing_bytes": 1_000});
    server.post(&format!("{path}/log"), log).await.expect(200);
    let settle = json!({"fence": fence, "outcome": "succeeded", "output": "the end\n"});
    let run = server.post(&format!("{path}/settle"), settle).await.expect(200);
    let (output, missing) = (run["output"].as_str().unwrap(), run["output_truncated_bytes"].as_u64().unwrap());
    let (first, rest) = output.split_once('\n').unwrap();
    assert_eq!(first, format!("[everytick: the first {missing} bytes of this output are not stored]"));
    assert!(output.len() <= 65_536 && rest.ends_with("x\nthe end\n"), "{rest}");
    assert_eq!(missing as usize + rest.len(), 1_000 + text.len() + "\nthe end\n".len());
    let attempts = server.get(&format!("{path}/attempts")).await.expect(200);
    assert_eq!(attempts["items"][0]["output_truncated_bytes"], missing);
    let list = server.get("/api/v1/runs").await.expect(200);
    assert_eq!(list["items"][0]["output_truncated_bytes"], Value::Null, "a list has no outputs");
}

#[tokio::test]
async fn a_repeated_settlement_gets_the_first_answer_and_a_different_one_is_refused() {
    let server = with_runs(2).await;
    let (path, fence, _) = claim_one(&server).await;
    let settle = format!("{path}/settle");
    let failed = json!({"fence": fence, "outcome": "failed", "error": "no disk", "output": "tail"});
    let first = server.post(&settle, failed.clone()).await.expect(200);
    assert_eq!(first["state"], "waiting");
    assert_eq!(server.post(&settle, failed.clone()).await.expect(200)["state"], "waiting");
    server.post(&settle, json!({"fence": fence, "outcome": "succeeded"})).await.expect(409);
    server.post(&settle, json!({"fence": fence, "outcome": "failed", "error": "other"})).await.expect(409);
    for (what, body) in [("heartbeat", json!({"fence": fence})), ("log", json!({"fence": fence, "text": "late"}))] {
        let stale = server.post(&format!("{path}/{what}"), body).await.expect(409);
        assert_eq!(stale["errors"][0]["field"], "fence", "{what}");
    }
    let (path, fence, _) = claim_one(&server).await;
    let done = json!({"fence": fence, "outcome": "succeeded", "output": "done"});
    for _ in 0..2 {
        assert_eq!(server.post(&format!("{path}/settle"), done.clone()).await.expect(200)["state"], "succeeded");
    }
}

#[tokio::test]
async fn many_runs_are_settled_in_one_request_each_by_its_own_fence() {
    let server = with_runs(3).await;
    let runs = claim(&server, json!({"worker": "w", "limit": 10})).await;
    assert_eq!(runs.len(), 3);
    let unknown = "01a1e327-d180-8de1-92e3-d388a74d8fe4";
    let settle = |run: &Value, fence: Value| json!({"run": run["id"], "fence": fence, "outcome": "succeeded"});
    let batch = json!({"settles": [
        settle(&runs[0], runs[0]["fence"].clone()),
        settle(&runs[1], json!(1)),
        {"run": runs[2]["id"], "fence": runs[2]["fence"], "outcome": "failed", "error": "x", "retry": false},
        {"run": unknown, "fence": 1, "outcome": "succeeded"},
    ]});
    for _ in 0..2 {
        let answer = server.post("/api/v1/queues/q/settle", batch.clone()).await.expect(200);
        let results: Vec<_> = answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["status"].clone(), one["state"].clone()))
            .collect();
        let expected = [(200, json!("succeeded")), (409, Value::Null), (200, json!("failed")), (404, Value::Null)];
        assert_eq!(results, expected.map(|(status, state)| (json!(status), state)));
    }
}

#[tokio::test]
async fn the_next_heartbeat_reports_that_the_run_was_cancelled() {
    let server = with_runs(1).await;
    let (path, fence, _) = claim_one(&server).await;
    server.post(&format!("{path}/cancel"), Value::Null).await.expect(200);
    let beat = server.post(&format!("{path}/heartbeat"), json!({"fence": fence})).await.expect(200);
    assert_eq!(beat, json!({"lease_until": null, "cancelled": true}));
    server.post(&format!("{path}/settle"), json!({"fence": fence, "outcome": "succeeded"})).await.expect(409);
}

#[tokio::test]
async fn a_returned_claim_waits_again_and_spends_no_attempt() {
    let server = with_runs(1).await;
    let (path, fence, _) = claim_one(&server).await;
    let release = format!("{path}/release");
    server.post(&format!("{path}/log"), json!({"fence": fence, "text": "begun"})).await.expect(200);
    assert_eq!(server.post(&release, json!({"fence": fence + 1})).await.expect(409)["errors"][0]["field"], "fence");
    assert_eq!(server.post(&release, json!({"fence": fence})).await.expect(200), json!({"released": true}));
    let run = server.get(&path).await.expect(200);
    let waits = (&run["state"], &run["attempt"], &run["worker"], &run["lost"]);
    assert_eq!(waits, (&json!("waiting"), &json!(0), &Value::Null, &json!(0)));
    server.post(&release, json!({"fence": fence})).await.expect(409);
    server.post(&format!("{path}/settle"), json!({"fence": fence, "outcome": "succeeded"})).await.expect(409);
    let (again, higher, run) = claim_one(&server).await;
    assert!(again == path && higher > fence && run["attempt"] == 1, "{run}");
    let unknown = "/api/v1/runs/01a1e327-d180-8de1-92e3-d388a74d8fe4/release";
    server.post(unknown, json!({"fence": 1})).await.expect(404);
}

#[tokio::test]
async fn a_worker_that_leaves_the_queue_is_answered_at_once_and_gets_no_later_run() {
    let server = Arc::new(with_runs(0).await);
    let waits = tokio::spawn({
        let server = server.clone();
        async move { claim(&server, json!({"worker": "leaves", "wait": "20s"})).await }
    });
    let leave = async |worker: &str| {
        server.post("/api/v1/queues/q/leave", json!({"worker": worker})).await.expect(200)["ended"].clone()
    };
    // The claim request may arrive after the first attempts to leave.
    while leave("leaves").await == 0 {
        assert_eq!(leave("other").await, 0);
        tokio::task::yield_now().await;
    }
    let runs = tokio::time::timeout(Duration::from_secs(15), waits).await.expect("the claim still waits").unwrap();
    assert!(runs.is_empty());
    server.post("/api/v1/jobs/j/trigger", json!({})).await.expect(201);
    assert_eq!(claim(&server, json!({"worker": "other"})).await.len(), 1);
}

/// Each trigger wakes one waiting worker; no worker waits its full time.
#[tokio::test]
async fn waiting_workers_are_answered_as_soon_as_runs_arrive() {
    let server = Arc::new(with_runs(0).await);
    let waits = |n: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let body = json!({"worker": format!("w{n}"), "wait": "20s"});
            claim(&server, body).await
        })
    };
    let workers: Vec<_> = (0..3).map(waits).collect();
    for n in 0..3 {
        server.post("/api/v1/jobs/j/trigger", json!({"payload": n})).await.expect(201);
    }
    let mut got = Vec::new();
    for worker in workers {
        let runs = tokio::time::timeout(Duration::from_secs(15), worker)
            .await
            .expect("the claim waits longer than 15 s")
            .unwrap();
        assert_eq!(runs.len(), 1);
        got.push(runs[0]["payload"].as_i64().unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2]);
    assert!(claim(&server, json!({"worker": "w", "wait": "50ms"})).await.is_empty(), "no run is left");
}

#[tokio::test]
async fn the_limits_of_a_queue_are_set_read_and_listed() {
    let server = with_runs(3).await;
    assert_eq!(server.get("/api/v1/queues/none").await.status.as_u16(), 404);
    let put = async |body: Value| server.call("PUT", "/api/v1/queues/q", &[], text_of(&body)).await;
    let queue = put(json!({"concurrency": 2, "rate": "100/1m"})).await.expect(200);
    assert_eq!((&queue["concurrency"], &queue["rate"], &queue["depth"]), (&json!(2), &json!("100/1m"), &json!(3)));
    assert_eq!(claim(&server, json!({"worker": "w", "limit": 9})).await.len(), 2);
    let queue = server.get("/api/v1/queues/q").await.expect(200);
    assert_eq!((&queue["claimed"], &queue["depth"]), (&json!(2), &json!(1)));
    assert_eq!(put(json!({})).await.expect(200)["concurrency"], Value::Null);
    assert_eq!(claim(&server, json!({"worker": "w", "limit": 9})).await.len(), 1);
    put(json!({"concurrency": 1})).await.expect(200);
    server.call("PUT", "/api/v1/queues/r", &[], "{\"concurrency\":1}").await.expect(200);
    let page = server.get("/api/v1/queues?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["name"], "q");
    let next = format!("/api/v1/queues?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    let page = server.get(&next).await.expect(200);
    assert_eq!((&page["items"][0]["name"], &page["next_cursor"]), (&json!("r"), &Value::Null));
}

#[tokio::test]
async fn a_key_limits_the_runs_of_one_customer() {
    let server = Server::new().await;
    let mut keyed = queued("j");
    keyed["concurrency_key"] = json!("payload.customer");
    let made = server.post("/api/v1/jobs", keyed).await.expect(201);
    assert_eq!((&made["concurrency_key"], &made["max_per_key"]), (&json!("payload.customer"), &json!(1)));
    for customer in ["a", "a", "b"] {
        server.post("/api/v1/jobs/j/trigger", json!({"payload": {"customer": customer}})).await.expect(201);
    }
    assert_eq!(claim(&server, json!({"worker": "w", "limit": 9})).await.len(), 2);
}

#[tokio::test]
async fn errors_of_queue_requests_name_their_fields() {
    let server = with_runs(1).await;
    let run = "01a1e327-d180-8de1-92e3-d388a74d8fe4";
    let claim = "/api/v1/queues/q/claim";
    let [beat, log, release] = ["heartbeat", "log", "release"].map(|what| format!("/api/v1/runs/{run}/{what}"));
    let job_with = |field: &str, value: Value| {
        let mut job = queued("k");
        job[field] = value;
        job
    };
    let cases = [
        ("POST", claim, json!({}), 422, "worker"),
        ("POST", claim, json!({"worker": ""}), 422, "worker"),
        ("POST", claim, json!({"worker": "w", "limit": 0}), 422, "limit"),
        ("POST", claim, json!({"worker": "w", "limit": 101}), 422, "limit"),
        ("POST", claim, json!({"worker": "w", "wait": "21s"}), 422, "wait"),
        ("POST", claim, json!({"worker": "w", "wait": "soon"}), 422, "wait"),
        ("POST", claim, json!({"worker": "w", "lease": "1s"}), 422, "lease"),
        ("POST", "/api/v1/queues/-q/claim", json!({"worker": "w"}), 404, "queue"),
        ("POST", "/api/v1/queues/q/leave", json!({}), 422, "worker"),
        ("POST", "/api/v1/queues/q/leave", json!({"worker": "x".repeat(129)}), 422, "worker"),
        ("POST", beat.as_str(), json!({}), 422, "fence"),
        ("POST", release.as_str(), json!({}), 422, "fence"),
        ("POST", log.as_str(), json!({"fence": 1}), 422, "text"),
        ("POST", log.as_str(), json!({"fence": 1, "text": "x".repeat(65_537)}), 422, "text"),
        ("POST", "/api/v1/queues/q/settle", json!({"settles": []}), 422, "settles"),
        ("POST", "/api/v1/queues/q/settle", json!({"settles": [{"run": "x"}]}), 422, "settles[0].run"),
        ("PUT", "/api/v1/queues/q", json!({"concurrency": 0}), 422, "concurrency"),
        ("PUT", "/api/v1/queues/q", json!({"rate": "fast"}), 422, "rate"),
        ("POST", "/api/v1/jobs", job_with("target", json!({"queue": {"name": "a b"}})), 422, "target.queue.name"),
        (
            "POST",
            "/api/v1/jobs",
            job_with("target", json!({"queue": {}, "http": {"url": "http://h/"}})),
            422,
            "target.queue.name",
        ),
        ("POST", "/api/v1/jobs", job_with("concurrency_key", json!("customer")), 422, "concurrency_key"),
        ("POST", "/api/v1/jobs", job_with("max_per_key", json!(0)), 422, "max_per_key"),
    ];
    for (method, path, body, status, field) in cases {
        let problem = server.call(method, path, &[], text_of(&body)).await.expect(status);
        assert_eq!(problem["errors"][0]["field"], field, "{method} {path}: {problem}");
    }
    let mut pushed = job("k");
    pushed["concurrency_key"] = json!("payload.customer");
    let problem = server.post("/api/v1/jobs", pushed).await.expect(422);
    assert_eq!(problem["errors"][0]["field"], "concurrency_key");
    for path in [&beat, &log] {
        assert_eq!(server.post(path, json!({"fence": 1, "text": "x"})).await.status.as_u16() / 100, 4);
    }
}
