//! More requests than the API's share of the store admits.

use serde_json::json;
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};

use crate::support::{Server, job};

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
