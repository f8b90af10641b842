//! More requests than the API's share of the store admits, and larger ones than its memory for them.

use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use serde_json::json;
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};

use tower::ServiceExt as _;

use crate::support::{Server, job, request};

#[tokio::test]
async fn a_request_that_gets_no_connection_in_time_is_told_when_to_ask_again() {
    let server = Server::new().await;
    server.make("there").await;
    let file = SqliteConnectOptions::new().filename(server.dir.path().join("everytick.db"));
    let mut other = file.connect().await.unwrap();
    sqlx::raw_sql("begin immediate").execute(&mut other).await.unwrap();
    // The first one has the API's turn to write and waits for the lock; the others wait for the turn.
    let answers = async {
        let [a, b, c] = ["a", "b", "c"].map(|name| server.post("/api/v1/jobs", job(name)));
        let refused = async {
            let (b, c) = tokio::join!(b, c);
            server.get("/api/v1/jobs/there").await.expect(200);
            sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
            [b, c]
        };
        tokio::join!(a, refused)
    };
    let (made, refused) = answers.await;
    made.expect(201);
    for refused in refused {
        let problem = refused.expect(503);
        assert_eq!(problem["type"], "urn:everytick:problem:busy");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(refused.header("content-type"), "application/problem+json");
    }
    let made = server.get("/api/v1/jobs?q=a").await.expect(200);
    assert_eq!(made["items"][0]["name"], json!("a"));
}

/// Three quarters of it suffice for one large answer or body, and not for two.
const BYTES_MAX: usize = 400 * 1024;

/// A server with memory for one answer of 200 kB, and a job whose answer has as many.
async fn with_large_job() -> Server {
    let server = Server::with_bytes_in_flight(BYTES_MAX).await;
    server.make("small").await;
    let mut large = job("large");
    large["payload"] = json!("x".repeat(200_000));
    server.post("/api/v1/jobs", large).await.expect(201);
    server
}

async fn short_requests_are_answered(server: &Server) {
    server.get("/healthz").await.expect(200);
    server.get("/readyz").await.expect(200);
    server.get("/api/v1/jobs/small").await.expect(200);
    server.post("/api/v1/jobs/small/trigger", json!({})).await.expect(201);
    server.post("/api/v1/queues/q/claim", json!({"worker": "w", "limit": 1, "wait": "0s"})).await.expect(200);
}

#[tokio::test]
async fn large_answers_that_are_not_read_do_not_add_up() {
    let server = with_large_job().await;
    let unread = server.router.clone().oneshot(request("GET", "/api/v1/jobs/large", &[], "")).await.unwrap();
    assert_eq!(unread.status(), 200);
    let refused = server.get("/api/v1/jobs/large").await;
    assert_eq!(refused.expect(503)["type"], "urn:everytick:problem:busy");
    assert_eq!(refused.header("retry-after"), "1");
    short_requests_are_answered(&server).await;
    drop(unread);
    server.get("/api/v1/jobs/large").await.expect(200);
}

#[tokio::test]
async fn an_edit_is_answered_also_when_large_answers_are_refused() {
    let server = with_large_job().await;
    let _unread = server.router.clone().oneshot(request("GET", "/api/v1/jobs/large", &[], "")).await.unwrap();
    let patched = server.ask("PATCH", "/api/v1/jobs/large", &[], r#"{"description": "d"}"#).await.expect(200);
    assert_eq!(patched["description"], "d");
}

#[tokio::test]
async fn bodies_that_are_not_sent_to_their_end_do_not_add_up() {
    let server = with_large_job().await;
    let half = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 200_000]))]);
    let (more, asked) = tokio::sync::oneshot::channel::<()>();
    // Polled for more only when the first part was taken.
    let stalls = stream::once(async move {
        drop(more);
        std::future::pending().await
    });
    let mut stalled = request("POST", "/api/v1/jobs", &[("content-type", "application/json")], "");
    *stalled.body_mut() = Body::from_stream(half.chain(stalls));
    let stalled = tokio::spawn(server.router.clone().oneshot(stalled));
    asked.await.unwrap_err();
    let mut large = job("other");
    large["payload"] = json!("x".repeat(200_000));
    server.post("/api/v1/jobs", large.clone()).await.expect(503);
    short_requests_are_answered(&server).await;
    stalled.abort();
    assert!(stalled.await.unwrap_err().is_cancelled());
    server.post("/api/v1/jobs", large).await.expect(201);
}
