//! Batches: the answer has one line for each line of the request.

use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{Answer, Server, job, request};

async fn batch(server: &Server, body: String) -> Answer {
    server.call("POST", "/api/v1/jobs/batch", &[("content-type", "application/x-ndjson")], body).await
}

fn lines(answer: &Answer) -> Vec<Value> {
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn every_valid_line_creates_a_job_and_every_invalid_line_gets_its_errors() {
    let server = Server::new().await;
    let long = format!("{{\"name\": \"long\", \"description\": \"{}\"}}", "d".repeat(1_100_000));
    let body = [
        job("a").to_string(),
        json!({"name": "b", "target": {"http": {"url": "nowhere"}}, "priority": 99}).to_string(),
        "{not json".to_owned(),
        String::new(),
        job("a").to_string(),
        long,
        json!({"name": "c", "colour": 1}).to_string(),
        format!("{}\r", job("d")),
        "[".repeat(1_000),
        job("e").to_string(), // without a newline at its end
    ];
    let answer = batch(&server, body.join("\n")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let answered = lines(&answer);
    let brief: Vec<_> = answered
        .iter()
        .map(|line| {
            (line["line"].as_u64().unwrap(), line["name"].as_str().unwrap_or("-"), line["status"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        brief,
        [
            (1, "a", 201),
            (2, "b", 422),
            (3, "-", 400),
            (5, "a", 409),
            (6, "-", 413),
            (7, "c", 422),
            (8, "d", 201),
            (9, "-", 400),
            (10, "e", 201)
        ]
    );
    let fields: Vec<_> = answered[1]["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
    assert_eq!(fields, ["target.http.url", "priority"]);
    assert_eq!(answered[3]["errors"][0]["field"], "name");
    assert_eq!(answered[5]["errors"][0]["field"], "colour");
    assert!(answered[0].get("errors").is_none() && answered[1].get("id").is_none());
    let made = server.get("/api/v1/jobs").await.expect(200);
    let names: Vec<_> = made["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "d", "e"]);
    assert_eq!(answered[0]["id"], made["items"][0]["id"]);
}

#[tokio::test]
async fn thousands_of_jobs_are_created_in_chunks_and_answered_in_order() {
    let server = Server::new().await;
    let body: String = (0..2_500).map(|n| format!("{}\n", job(&format!("j{n}")))).collect();
    let answered = lines(&batch(&server, body).await);
    assert_eq!(answered.len(), 2_500);
    for (n, line) in answered.iter().enumerate() {
        assert_eq!(
            (&line["line"], &line["name"], &line["status"]),
            (&json!(n + 1), &json!(format!("j{n}")), &json!(201))
        );
    }
}

#[tokio::test]
async fn a_batch_with_too_many_lines_ends_with_an_error() {
    let server = Server::new().await;
    let answered = lines(&batch(&server, "{}\n".repeat(100_002)).await);
    assert_eq!(answered.len(), 100_001);
    let last = answered.last().unwrap();
    assert_eq!(last["status"], 400);
    assert!(last["errors"][0]["message"].as_str().unwrap().contains("100000 lines"));
}

/// Over a real connection: the socket buffers are smaller than the body and than the answer.
#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_anything_is_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(axum::serve(listener, server.router.clone()).into_future());
    let body = format!("{{\"name\": 1, \"description\": \"{}\"}}\n", "x".repeat(200)).repeat(90_000);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /api/v1/jobs/batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"));
    assert_eq!(answer.matches("\"status\":422").count(), 90_000);
    serving.abort();
}

#[tokio::test]
async fn two_batches_are_processed_at_a_time_and_a_third_gets_429() {
    let server = Server::new().await;
    let open = || {
        let (lines, body) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(1);
        let body = futures::stream::unfold(body, |mut body| async { body.recv().await.map(|line| (line, body)) });
        let mut request = request("POST", "/api/v1/jobs/batch", &[("content-type", "application/x-ndjson")], "");
        *request.body_mut() = axum::body::Body::from_stream(body);
        (lines, server.router.clone().oneshot(request))
    };
    let ((first, one), (second, two)) = (open(), open());
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    let refused = batch(&server, job("c").to_string()).await;
    assert_eq!(refused.expect(429)["type"], "urn:everytick:problem:rate-limited");
    assert_eq!(refused.header("retry-after"), "1");
    first.send(Ok(job("a").to_string())).await.unwrap();
    drop(first);
    let answered = axum::body::to_bytes(one.into_body(), usize::MAX).await.unwrap();
    assert!(String::from_utf8_lossy(&answered).contains("\"status\":201"));
    assert_eq!(lines(&batch(&server, job("c").to_string()).await)[0]["status"], 201);
    drop((second, two));
}
