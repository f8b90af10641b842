//! How many calls of the store a request costs.

use std::sync::{Arc, Mutex};

use everytick_sim::{Call, Faults, Point};
use serde_json::json;

use crate::support::{Server, job};

/// Notes every call of the store.
#[derive(Default)]
struct Calls(Mutex<Vec<Point>>);

impl Faults for Calls {
    fn call(&self, point: Point) -> Option<Call> {
        self.0.lock().unwrap().push(point);
        None
    }
}

impl Calls {
    /// The calls since this was last called.
    fn made(&self) -> Vec<Point> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[tokio::test]
async fn an_edit_reads_its_job_once_besides_the_edit_itself() {
    let calls = Arc::new(Calls::default());
    let server = Server::simulated(calls.clone());
    server.make("j").await;
    calls.made();
    server.call("PATCH", "/api/v1/jobs/j", &[], json!({ "priority": 7 }).to_string()).await.expect(200);
    assert_eq!(calls.made(), [Point::Read, Point::Edit]);
    server.call("PUT", "/api/v1/jobs/j", &[], job("j").to_string()).await.expect(200);
    assert_eq!(calls.made(), [Point::Read, Point::Edit]);
    server.post("/api/v1/jobs/j/pause", json!({})).await.expect(200);
    assert_eq!(calls.made(), [Point::Edit, Point::Read]);
}

#[tokio::test]
async fn a_trigger_is_one_call() {
    let calls = Arc::new(Calls::default());
    let server = Server::simulated(calls.clone());
    server.make("j").await;
    calls.made();
    server.post("/api/v1/jobs/j/trigger", json!({})).await.expect(201);
    assert_eq!(calls.made(), [Point::Ask]);
}

#[tokio::test]
async fn a_path_with_text_that_is_no_name_or_id_is_answered_without_a_call() {
    let calls = Arc::new(Calls::default());
    let server = Server::simulated(calls.clone());
    // The first request reads whether requests need a token.
    server.get("/api/v1/jobs").await.expect(200);
    calls.made();
    for path in ["jobs/a%20b", "jobs/a%00b", "runs/xyz", "flows/xyz", "calendars/a%20b", "backfills/xyz"] {
        server.get(&format!("/api/v1/{path}")).await.expect(404);
    }
    assert_eq!(calls.made(), []);
}
