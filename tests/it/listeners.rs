//! What the server listens on, and under which names clients may reach it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
};

use crate::support::{Server, everytick, wait_for};

/// Sends one request with this `Host` and further header lines, and returns the whole answer.
fn ask(mut stream: impl Read + Write, path: &str, host: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn tcp(url: &str) -> TcpStream {
    TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap()
}

/// The addresses in the banner.
fn servers(server: &Server) -> Vec<String> {
    let banner = server.banner();
    banner.lines().filter_map(|line| line.trim().strip_prefix("listening on ")).map(ToOwned::to_owned).collect()
}

#[test]
fn every_listener_serves_the_api_and_no_webhook_may_call_any_of_them() {
    let flags = ["--listen", "127.0.0.1:0", "--listen", "unix:api.sock", "--allow-webhook-range", "127.0.0.0/8"];
    let server = Server::builder().flags(&flags).start();
    let listening = servers(&server);
    assert_eq!((listening.len(), listening[2].as_str()), (3, "unix:api.sock"));
    for url in &listening[..2] {
        let answer = ask(tcp(url), "/api/v1/jobs", url.strip_prefix("http://").unwrap(), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{url}: {answer}");
        let job = format!("own-{}", url.rsplit(':').next().unwrap());
        let call = format!("{url}/api/v1/jobs/{job}/trigger");
        server.everytick(&["job", "create", &job, "--every", "1d", "--url", &call]).ok();
        server.everytick(&["job", "trigger", &job]).ok();
        let error = wait_for("the run to fail", || {
            let runs = server.everytick(&["job", "runs", &job, "-o", "json"]).json();
            let run = &runs["items"][0];
            (run["state"] == "failed").then(|| run["error"].as_str().unwrap_or_default().to_owned())
        });
        assert!(error.contains("the API of a node of this cluster"), "{url}: {error}");
    }
    let socket = server.dir().join("api.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    let answer = ask(UnixStream::connect(&socket).unwrap(), "/api/v1/jobs", "localhost", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_socket_file_of_a_killed_server_is_replaced() {
    let server = Server::builder().flags(&["--listen", "unix:api.sock"]).start();
    let dir = server.kill();
    assert!(dir.path().join("api.sock").exists());
    let server = Server::builder().dir(dir).flags(&["--listen", "unix:api.sock"]).start();
    let answer = ask(UnixStream::connect(server.dir().join("api.sock")).unwrap(), "/healthz", "localhost", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_proxy_and_a_port_forward_are_accepted_under_the_names_that_the_operator_allows() {
    let flags = ["--public-url", "https://jobs.example.org", "--allow-host", "localhost:9999,node1.internal"];
    let server = Server::builder().flags(&flags).start();
    let status = |host: &str, headers: &str| {
        let answer = ask(tcp(server.url()), "/api/v1/jobs", host, headers);
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    for host in ["jobs.example.org", "localhost:9999", "node1.internal:8640", "localhost"] {
        assert_eq!(status(host, ""), 200, "{host}");
    }
    for host in ["evil.example", "localhost:9998", "jobs.example.org:8443"] {
        assert_eq!(status(host, ""), 403, "{host}");
    }
    assert_eq!(status("localhost", "origin: https://jobs.example.org\r\n"), 200);
    assert_eq!(status("jobs.example.org", "origin: https://evil.example\r\n"), 403);
    let refused = ask(tcp(server.url()), "/api/v1/jobs", "evil.example", "");
    assert!(refused.contains("https://jobs.example.org") && refused.contains("--allow-host"), "{refused}");
    assert!(server.banner().contains("public URL https://jobs.example.org"));
}

#[test]
fn metrics_have_a_listener_without_credentials_that_serves_nothing_else() {
    let server = Server::builder().flags(&["--auth", "required", "--metrics-listen", "127.0.0.1:0"]).start();
    server.wait_for_log("metrics are served without a token");
    let log = server.log();
    let url = log.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().trim_matches('"').to_owned();
    let host = url.strip_prefix("http://").unwrap();
    let counted = wait_for("the tokens to be counted", || {
        let answer = ask(tcp(&url), "/metrics", host, "");
        answer.contains("\neverytick_tokens_expiring 0\n").then_some(answer)
    });
    assert!(counted.starts_with("HTTP/1.1 200"), "{counted}");
    for path in ["/api/v1/jobs", "/healthz", "/", "/docs"] {
        let answer = ask(tcp(&url), path, host, "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    for (path, host, headers) in
        [("/metrics", "evil.example", ""), ("/metrics", host, "sec-fetch-site: cross-site\r\n")]
    {
        let answer = ask(tcp(&url), path, host, headers);
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
    }
    let host = server.url().strip_prefix("http://").unwrap();
    let closed = ask(tcp(server.url()), "/metrics", host, "");
    assert!(closed.starts_with("HTTP/1.1 401"), "{closed}");
}

#[test]
fn a_wrong_listener_is_refused_with_the_remedy() {
    for (value, expected) in [("unix:", "unix:/run/everytick/api.sock"), ("unix:/", "unix:/run/everytick/api.sock")] {
        let refused = everytick(&["serve", "--listen", value]).failed(2);
        assert!(refused.contains(expected), "{value}: {refused}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let listen = format!("unix:{}", file.path().display());
    let refused = everytick(&["serve", "--listen", &listen]).failed(2);
    assert!(refused.contains("is not a socket"), "{refused}");
    assert!(file.path().exists());
}
