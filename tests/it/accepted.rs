//! Receivers that answer 202 with `everytick-async: true` and report later. A run that a receiver accepted outlives the node
//! that sent it.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, Sink, wait_for};

fn serve(dir: Option<TempDir>) -> Server {
    let builder = Server::builder().flags(&["--allow-webhook-range", "127.0.0.0/8", "--drain-timeout", "30s"]);
    match dir {
        None => builder.start(),
        Some(dir) => builder.dir(dir).start(),
    }
}

/// Creates a job whose receiver accepts runs, and returns an accepted run.
fn accepted(server: &Server, sink: &Sink) -> Value {
    let url = sink.url();
    server.everytick(&["job", "create", "slow", "--url", &url, "--timeout", "10m"]).ok();
    server.everytick(&["job", "trigger", "slow"]).ok();
    sink.wait_for(1);
    // From now on the claim belongs to the receiver.
    wait_for("the receiver to own the claim", || {
        let run = run(server);
        (run["worker"] == "http").then_some(run)
    })
}

fn run(server: &Server) -> Value {
    let runs = server.everytick(&["job", "runs", "slow", "--output", "json"]).json();
    let id = runs["items"][0]["id"].as_str().unwrap().to_owned();
    server.everytick(&["run", "get", &id, "--output", "json"]).json()
}

/// Reports a result as the receiver does, with the fence of its delivery.
fn report(server: &Server, sink: &Sink) -> u16 {
    let headers = sink.deliveries()[0].headers.clone();
    let url = format!("{}/api/v1/runs/{}/settle", server.url(), headers["everytick-run"]);
    let fence: i64 = headers["everytick-fence"].parse().unwrap();
    let body = json!({"fence": fence, "outcome": "succeeded", "output": "done"});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { reqwest::Client::new().post(&url).json(&body).send().await.unwrap().status().as_u16() })
}

/// Checks that the accepted run is not delivered again. A node settles the lost runs of an earlier process before it claims
/// anything. So if the accepted run counted as lost, its delivery would precede that of a run triggered now.
fn check_delivered_once(server: &Server, sink: &Sink, before: &Value) {
    let later = Sink::start();
    let name = format!("after-{}", server.pid());
    server.everytick(&["job", "create", &name, "--url", &later.url()]).ok();
    server.everytick(&["job", "trigger", &name]).ok();
    later.wait_for(1);
    let after = run(server);
    assert_eq!((&after["state"], &after["attempt"], &after["fence"]), (&json!("claimed"), &json!(1), &before["fence"]));
    assert_eq!(sink.deliveries().len(), 1, "the run was delivered once");
}

#[test]
fn an_accepted_run_survives_a_restart_and_a_kill_of_its_node_and_is_settled_by_the_later_report() {
    let sink = Sink::answering(|_| "202 Accepted\r\neverytick-async: true".to_owned());
    let server = serve(None);
    let before = accepted(&server, &sink);
    assert_eq!((&before["state"], &before["attempt"]), (&json!("claimed"), &json!(1)));

    let (dir, status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = serve(Some(dir));
    check_delivered_once(&server, &sink, &before);

    let server = serve(Some(server.kill()));
    check_delivered_once(&server, &sink, &before);

    assert_eq!(report(&server, &sink), 200);
    let over = run(&server);
    assert_eq!((&over["state"], &over["attempt"], &over["output"]), (&json!("succeeded"), &json!(1), &json!("done")));
    assert_eq!(report(&server, &sink), 200, "a repeated report gets the same answer");
    assert_eq!(sink.deliveries().len(), 1);
}
