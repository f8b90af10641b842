//! The limits of a busy node: requests that wait for a connection of the store, and the memory of large bodies and
//! answers.

use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use serde_json::json;
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};

use tower::ServiceExt as _;

use crate::support::{Server, job, request};

#[tokio::test]
async fn a_request_that_gets_no_connection_in_time_gets_503_with_retry_after() {
    let server = Server::new().await;
    server.make("there").await;
    let file = SqliteConnectOptions::new().filename(server.dir.path().join("everytick.db"));
    let mut other = file.connect().await.unwrap();
    sqlx::raw_sql("begin immediate").execute(&mut other).await.unwrap();
    // The first request has the API's only write permit and waits for the database lock; the others wait for the permit.
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

/// Three quarters of it suffice for one large answer or body, but not for two.
const BYTES_MAX: usize = 400 * 1024;

/// A server with memory for one answer of 200 kB, and a job whose answer has that size.
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
async fn a_second_large_answer_is_refused_while_the_first_is_unread() {
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
async fn an_edit_gets_its_answer_even_when_large_answers_are_refused() {
    let server = with_large_job().await;
    let _unread = server.router.clone().oneshot(request("GET", "/api/v1/jobs/large", &[], "")).await.unwrap();
    let patched = server.call("PATCH", "/api/v1/jobs/large", &[], r#"{"description": "d"}"#).await.expect(200);
    assert_eq!(patched["description"], "d");
}

#[tokio::test]
async fn a_second_large_body_is_refused_while_the_first_is_incomplete() {
    let server = with_large_job().await;
    let half = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 200_000]))]);
    let (more, dropped) = tokio::sync::oneshot::channel::<()>();
    // Polled only after the server has read the first part.
    let stalls = stream::once(async move {
        drop(more);
        std::future::pending().await
    });
    let mut stalled = request("POST", "/api/v1/jobs", &[("content-type", "application/json")], "");
    *stalled.body_mut() = Body::from_stream(half.chain(stalls));
    let stalled = tokio::spawn(server.router.clone().oneshot(stalled));
    dropped.await.unwrap_err();
    let mut large = job("other");
    large["payload"] = json!("x".repeat(200_000));
    server.post("/api/v1/jobs", large.clone()).await.expect(503);
    short_requests_are_answered(&server).await;
    stalled.abort();
    assert!(stalled.await.unwrap_err().is_cancelled());
    server.post("/api/v1/jobs", large).await.expect(201);
}
