//! Backfills: requests, refusals with their fields, and progress.

use everytick_domain::{
    ids::{BackfillId, RunId},
    partition::PartitionSet,
    time::{DbTime, Span},
};
use serde_json::{Value, json};

use crate::support::{Server, job};

/// An hourly job with overlap `allow`; returns a tick some hours ago.
async fn hourly(server: &Server) -> DbTime {
    let mut definition = job("j");
    definition["schedule"] = json!({"cron": "0 * * * *"});
    definition["overlap"] = json!("allow");
    server.post("/api/v1/jobs", definition).await.expect(201);
    let now = server.store.now().await.unwrap();
    let hour = 3_600_000;
    DbTime::from_millis((now.millis() / hour - 20) * hour)
}

/// The period from the tick `from` to the tick `hours` later, both included.
fn period(from: DbTime, hours: u64) -> Value {
    json!({"from": from.to_string(), "to": from.plus(Span::hours(hours)).plus(Span::millis(1)).to_string()})
}

async fn advance(server: &Server, backfill: &Value) {
    let lease = server.join().await;
    let id: BackfillId = backfill["id"].as_str().unwrap().parse().unwrap();
    server.store.advance_backfill(&lease, id, Span::days(90)).await.unwrap();
}

#[tokio::test]
async fn a_backfill_is_created_read_and_cancelled_with_its_runs() {
    let server = Server::new().await;
    let from = hourly(&server).await;
    let mut body = period(from, 3);
    body["rate"] = json!("2/1m");
    body["order"] = json!("newest");
    body["payload"] = json!({"again": true});
    let made = server.post("/api/v1/jobs/j/backfill", body).await;
    let at = made.header("location").to_owned();
    let made = made.expect(201);
    assert_eq!(at, format!("/api/v1/backfills/{}", made["id"].as_str().unwrap()));
    assert_eq!((&made["job"], &made["state"], &made["order"]), (&json!("j"), &json!("running"), &json!("newest")));
    assert_eq!((&made["total"], &made["made"], &made["rate"]), (&json!(4), &json!(0), &json!("2/1m")));
    assert_eq!(made.get("first"), None);

    advance(&server, &made).await;
    let progress = server.get(&at).await.expect(200);
    assert_eq!((&progress["made"], &progress["ended"]), (&json!(2), &json!(0)));
    let runs = server.get("/api/v1/jobs/j/runs").await.expect(200);
    let instants: Vec<_> = runs["items"].as_array().unwrap().iter().map(|run| run["scheduled_at"].clone()).collect();
    assert_eq!(instants, [3, 2].map(|hours| json!(from.plus(Span::hours(hours)).to_string())));
    assert_eq!((&runs["items"][0]["cause"], &runs["items"][0]["state"]), (&json!("backfill"), &json!("waiting")));

    // One of its runs is claimed. The cancel stops a claimed run too.
    let (lease, run) = (server.join().await, runs["items"][0]["id"].as_str().unwrap().parse::<RunId>().unwrap());
    let claimed = server.store.claim(&lease, &PartitionSet::all(256), &[run]).await.unwrap();
    assert_eq!(claimed[0].payload.as_deref(), Some(r#"{"again":true}"#));
    let cancelled = server.post(&format!("{at}/cancel?cancel_runs=true"), Value::Null).await.expect(200);
    assert_eq!(
        (&cancelled["state"], &cancelled["cancelled"], &cancelled["made"]),
        (&json!("cancelled"), &json!(2), &json!(2))
    );
    assert!(cancelled["finished_at"].is_string());
    let list = server.get("/api/v1/jobs/j/backfills").await.expect(200);
    assert_eq!((&list["items"], &list["next_cursor"]), (&json!([cancelled]), &Value::Null));
}

#[tokio::test]
async fn a_dry_run_creates_nothing_and_returns_the_first_and_last_ticks() {
    let server = Server::new().await;
    let from = hourly(&server).await;
    let mut body = period(from, 13);
    body["dry_run"] = json!(true);
    let answer = server.post("/api/v1/jobs/j/backfill", body).await.expect(200);
    assert_eq!((&answer["id"], &answer["state"], &answer["total"]), (&Value::Null, &Value::Null, &json!(14)));
    let hours = |hours: &[u64]| json!(hours.iter().map(|n| from.plus(Span::hours(*n)).to_string()).collect::<Vec<_>>());
    assert_eq!((&answer["first"], &answer["last"]), (&hours(&[0, 1, 2, 3, 4]), &hours(&[9, 10, 11, 12, 13])));
    assert_eq!(server.get("/api/v1/jobs/j/backfills").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_repeat_with_the_same_key_creates_one_backfill() {
    let server = Server::new().await;
    let body = period(hourly(&server).await, 3).to_string();
    let key = [("idempotency-key", "k")];
    let first = server.call("POST", "/api/v1/jobs/j/backfill", &key, body.clone()).await.expect(201);
    let again = server.call("POST", "/api/v1/jobs/j/backfill", &key, body).await.expect(201);
    assert_eq!(first, again);
    assert_eq!(server.get("/api/v1/jobs/j/backfills").await.expect(200)["items"], json!([first]));
}

#[tokio::test]
async fn errors_of_backfill_requests_name_their_fields() {
    let server = Server::new().await;
    let from = hourly(&server).await;
    let mut idle = job("idle");
    idle["schedule"] = Value::Null;
    server.post("/api/v1/jobs", idle).await.expect(201);
    let text = |at: DbTime| json!(at.to_string());
    let (later, long_ago) = (from.plus(Span::days(9)), from.minus(Span::days(400)));
    for (job, field, value, wrong) in [
        ("j", "from", Value::Null, "from"),
        ("j", "from", json!("yesterday"), "from"),
        ("j", "from", text(long_ago), "from"),
        ("j", "to", text(later), "to"),
        ("j", "to", text(from.minus(Span::hours(1))), "to"),
        ("j", "rate", json!("fast"), "rate"),
        ("j", "payload", json!("x".repeat(300 * 1024)), "payload"),
        ("idle", "dry_run", json!(false), "job"),
        ("idle", "dry_run", json!(true), "job"),
    ] {
        let mut body = period(from, 3);
        body[field] = value;
        let refused = server.post(&format!("/api/v1/jobs/{job}/backfill"), body.clone()).await.expect(422);
        assert_eq!(refused["errors"][0]["field"], wrong, "{body}: {refused}");
    }
    let many = json!({"from": text(from.minus(Span::days(60))), "to": text(from)});
    let mut often = job("often");
    often["schedule"] = json!({"every": "1m"});
    server.post("/api/v1/jobs", often).await.expect(201);
    let refused = server.post("/api/v1/jobs/often/backfill", many).await.expect(422);
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("10000"), "{refused}");

    server.post("/api/v1/jobs/missing/backfill", period(from, 3)).await.expect(404);
    server.get("/api/v1/jobs/missing/backfills").await.expect(404);
    server.get("/api/v1/backfills/nonsense").await.expect(404);
    server.get("/api/v1/backfills/00000000-0000-4000-8000-000000000001").await.expect(404);
    server.post("/api/v1/backfills/00000000-0000-4000-8000-000000000001/cancel", Value::Null).await.expect(404);
    server.get("/api/v1/jobs/j/backfills?cursor=abc").await.expect(400);
}
