//! Flows over HTTP: define, work through, read, cancel, rerun.

use serde_json::{Value, json};

use crate::support::{Answer, Server, job, text_of};

/// A job with parents, whose runs a worker claims from the queue `q`.
fn after(name: &str, parents: Value) -> Value {
    let mut job = job(name);
    job["target"] = json!({"queue": {"name": "q"}});
    job["schedule"] = Value::Null;
    job["depends_on"] = parents;
    job
}

async fn diamond() -> Server {
    let server = Server::new().await;
    for (name, parents) in [
        ("extract", json!([])),
        ("left", json!(["extract"])),
        ("right", json!([{"job": "extract", "when": "succeeded"}])),
        ("load", json!([{"job": "left"}, {"job": "right"}])),
        ("clean", json!([{"job": "load", "when": "finished"}])),
    ] {
        server.post("/api/v1/jobs", after(name, parents)).await.expect(201);
    }
    server
}

/// Advances every flow that has steps; returns their number.
async fn advance(server: &Server) -> usize {
    let flows = server.store.flows_with_steps(None, 100).await.unwrap();
    for flow in &flows {
        server.store.advance_flow(*flow).await.unwrap();
    }
    flows.len()
}

/// Claims and settles everything in the queue. `outcome` gives the outcome for a job's name.
async fn work(server: &Server, outcome: impl Fn(&str) -> &'static str) {
    loop {
        let claimed = server.post("/api/v1/queues/q/claim", json!({"worker": "w", "limit": 10})).await.expect(200);
        let runs = claimed["runs"].as_array().unwrap().clone();
        for run in &runs {
            let outcome = outcome(run["job"].as_str().unwrap());
            let body = json!({"fence": run["fence"], "outcome": outcome, "output": "{\"rows\": 3}", "retry": false});
            server.post(&format!("/api/v1/runs/{}/settle", run["id"].as_str().unwrap()), body).await.expect(200);
        }
        if advance(server).await == 0 && runs.is_empty() {
            return;
        }
    }
}

async fn patch(server: &Server, job: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/merge-patch+json")];
    server.call("PATCH", &format!("/api/v1/jobs/{job}"), &headers, text_of(body)).await
}

fn states(flow: &Value) -> String {
    let shown = |node: &Value| format!("{} {}", node["job"].as_str().unwrap(), node["state"].as_str().unwrap_or("-"));
    flow["nodes"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn a_flow_is_read_while_it_runs_and_after_its_end() {
    let server = diamond().await;
    let root = server.post("/api/v1/jobs/extract/trigger", json!({})).await.expect(201);
    assert_eq!(root["flow"], root["id"]);
    let path = format!("/api/v1/flows/{}", root["id"].as_str().unwrap());
    let flow = server.get(&path).await.expect(200);
    assert_eq!(
        (&flow["state"], &flow["root"], &flow["rerun_of"]),
        (&json!("running"), &json!("extract"), &Value::Null)
    );
    assert_eq!(states(&flow), "extract waiting, left -, right -, load -, clean -");
    work(&server, |_| "succeeded").await;
    let flow = server.get(&path).await.expect(200);
    assert_eq!(flow["state"], "succeeded");
    let load = &flow["nodes"][3];
    assert_eq!(load["parents"], json!([{"job": "left", "when": "succeeded"}, {"job": "right", "when": "succeeded"}]));
    let run = server.get(&format!("/api/v1/runs/{}", load["run"].as_str().unwrap())).await.expect(200);
    assert_eq!((&run["cause"], &run["flow"]), (&json!("parent"), &root["id"]));
    assert_eq!(run["scheduled_at"], root["scheduled_at"]);
}

#[tokio::test]
async fn failed_jobs_are_rerun_in_one_new_flow() {
    let server = diamond().await;
    let root = server.post("/api/v1/jobs/extract/trigger", json!({})).await.expect(201);
    work(&server, |job| if job == "left" { "failed" } else { "succeeded" }).await;
    let path = format!("/api/v1/flows/{}", root["id"].as_str().unwrap());
    let flow = server.get(&path).await.expect(200);
    assert_eq!(states(&flow), "extract succeeded, left failed, right succeeded, load skipped, clean succeeded");
    let load = &flow["nodes"][3];
    assert_eq!(load["skip_reason"], "parent");
    assert_eq!(load["error"], "parent left is failed, not succeeded");
    assert_eq!(flow["state"], "failed");

    let wrong = server.post(&format!("{path}/rerun"), json!({"from": ["missing"]})).await.expect(422);
    assert_eq!(wrong["errors"][0]["field"], "from[0]");
    server.post(&format!("{path}/rerun"), json!({"form": []})).await.expect(422);
    let again = server.post(&format!("{path}/rerun"), json!({})).await.expect(201);
    assert_eq!((&again["rerun_of"], &again["root"]), (&root["id"], &Value::Null));
    work(&server, |_| "succeeded").await;
    let again = server.get(&format!("/api/v1/flows/{}", again["id"].as_str().unwrap())).await.expect(200);
    assert_eq!(states(&again), "left succeeded, load succeeded, clean succeeded");
    assert_eq!(again["state"], "succeeded");
}

#[tokio::test]
async fn cancelling_a_flow_cancels_its_open_runs() {
    let server = diamond().await;
    let root = server.post("/api/v1/jobs/extract/trigger", json!({})).await.expect(201);
    let path = format!("/api/v1/flows/{}", root["id"].as_str().unwrap());
    let cancelled = server.post(&format!("{path}/cancel"), json!({})).await.expect(200);
    assert_eq!(cancelled["cancelled"], json!([root["id"]]));
    assert_eq!(cancelled["flow"]["state"], "cancelled");
    work(&server, |_| "succeeded").await;
    let flow = server.get(&path).await.expect(200);
    assert_eq!(states(&flow), "extract cancelled, left skipped, right skipped, load skipped, clean skipped");
    let again = server.post(&format!("{path}/cancel"), json!({})).await.expect(409);
    assert!(again["detail"].as_str().unwrap().contains("it is cancelled"), "{again}");
}

#[tokio::test]
async fn cycles_are_refused_and_a_parent_cannot_be_deleted_or_renamed() {
    let server = diamond().await;
    let cycle = patch(&server, "extract", &json!({"depends_on": [{"job": "load"}]})).await.expect(422);
    assert_eq!(cycle["errors"][0]["field"], "depends_on");
    assert_eq!(cycle["errors"][0]["message"], "makes a cycle: extract -> left -> load -> extract");
    let followed = server.call("DELETE", "/api/v1/jobs/extract", &[], "").await.expect(409);
    assert!(followed["detail"].as_str().unwrap().contains("left, right"), "{followed}");
    patch(&server, "extract", &json!({"name": "other"})).await.expect(409);
    let own = server.get("/api/v1/jobs/left").await.expect(200);
    assert_eq!(own["depends_on"], json!([{"job": "extract", "when": "succeeded"}]));
    let unknown = "01a1e327-d180-8de1-92e3-d388a74d8fe4";
    server.get(&format!("/api/v1/flows/{unknown}")).await.expect(404);
    server.post(&format!("/api/v1/flows/{unknown}/cancel"), json!({})).await.expect(404);
    server.post(&format!("/api/v1/flows/{unknown}/rerun"), json!({})).await.expect(404);
}

#[tokio::test]
async fn a_payload_may_use_only_the_outputs_of_the_jobs_parents() {
    let server = diamond().await;
    let mut job = after("report", json!([{"job": "load"}]));
    job["payload"] = json!({"rows": "{{ parents.left.output.rows }}"});
    let refused = server.post("/api/v1/jobs", job.clone()).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "payload");
    job["payload"] = json!({"rows": "{{ parents.load.output.rows }}"});
    server.post("/api/v1/jobs", job).await.expect(201);
    server.post("/api/v1/jobs/load/trigger", json!({})).await.expect(201);
    let claimed = server.post("/api/v1/queues/q/claim", json!({"worker": "w"})).await.expect(200);
    let run = &claimed["runs"][0];
    let body = json!({"fence": run["fence"], "outcome": "succeeded", "output": "{\"rows\": 3}"});
    server.post(&format!("/api/v1/runs/{}/settle", run["id"].as_str().unwrap()), body).await.expect(200);
    advance(&server).await;
    let claimed = server.post("/api/v1/queues/q/claim", json!({"worker": "w", "limit": 10})).await.expect(200);
    let report = claimed["runs"].as_array().unwrap().iter().find(|run| run["job"] == "report").unwrap();
    assert_eq!(report["payload"], json!({"rows": 3}));
    let refused = server.post("/api/v1/jobs/report/trigger", json!({})).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "payload");
    let why = refused["errors"][0]["message"].as_str().unwrap();
    assert!(why.contains("{{ parents.load.output.rows }}, but this run would belong to no flow"), "{why}");
    server.post("/api/v1/jobs/report/trigger", json!({"payload": {"rows": 0}})).await.expect(201);
}
