//! Which callers are allowed, and the headers of every answer.

use crate::support::Server;

#[tokio::test]
async fn programs_and_pages_of_this_server_may_send_requests() {
    let server = Server::new().await;
    for host in ["127.0.0.1:8640", "localhost:8640", "localhost", "[::1]:8640", "127.0.0.1"] {
        let answer = server.call("GET", "/healthz", &[("host", host)], "").await;
        assert_eq!(answer.expect(200)["status"], "ok", "{host}");
        let origin = format!("http://{host}");
        server.call("GET", "/healthz", &[("host", host), ("origin", &origin)], "").await.expect(200);
    }
}

#[tokio::test]
async fn a_webhook_may_not_use_the_api() {
    let server = Server::new().await;
    for (method, path) in [("GET", "/healthz"), ("POST", "/api/v1/jobs"), ("GET", "/nowhere")] {
        let answer = server.call(method, path, &[("host", "localhost"), ("everytick-run", "x")], "{}").await;
        let problem = answer.expect(403);
        assert!(problem["detail"].as_str().unwrap().contains("everytick-run"), "{problem}");
    }
}

#[tokio::test]
async fn every_answer_has_the_security_headers_also_a_refusal() {
    let server = Server::new().await;
    for (path, host) in
        [("/healthz", "localhost"), ("/nowhere", "localhost"), ("/docs", "localhost"), ("/healthz", "evil.example")]
    {
        let answer = server.call("GET", path, &[("host", host)], "").await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
    }
}

#[tokio::test]
async fn readyz_of_a_node_that_is_not_ready_has_the_reason() {
    let server = Server::new().await;
    assert_eq!(server.get("/readyz").await.expect(200)["status"], "ready");
    server.ready.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(server.get("/readyz").await.expect(503)["detail"], "the store is not open yet");
    server.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn metrics_are_served_in_the_text_format_of_prometheus() {
    let server = Server::new().await;
    let answer = server.get("/metrics").await;
    assert_eq!(answer.text, "everytick_ticks_total 7\n");
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
}

#[tokio::test]
async fn an_answer_carries_the_id_of_its_request() {
    let server = Server::new().await;
    let get = async |path: &'static str, id: &str| server.call("GET", path, &[("everytick-request-id", id)], "").await;
    for path in ["/api/v1/jobs", "/nowhere", "/api/v1/jobs/unknown"] {
        assert_eq!(get(path, "deploy-7/2").await.header("everytick-request-id"), "deploy-7/2", "{path}");
    }
    let (first, second) = (server.get("/api/v1/jobs").await, server.get("/api/v1/jobs").await);
    assert_eq!(first.header("everytick-request-id").len(), 36);
    assert_ne!(first.header("everytick-request-id"), second.header("everytick-request-id"));
    let long = "x".repeat(65);
    for wrong in ["", "a b", &long] {
        let problem = get("/api/v1/jobs", wrong).await.expect(400);
        assert_eq!(problem["errors"][0]["field"], "everytick-request-id", "{problem}");
    }
}
