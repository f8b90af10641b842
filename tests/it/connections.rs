//! Idle and waiting connections do not take descriptors or connection slots from runs and other requests.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    thread,
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::{Server, Sink, wait_for};

/// Sets the open-file limit of the server to `more` above the files that it has open.
fn leave_files(server: &Server, more: u64) {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    set_file_limit(server, Rlimit { current: Some(open + more), maximum: None });
}

/// Sets the soft limit only, so that a later call can raise it again. Returns the previous limit.
fn set_file_limit(server: &Server, limit: Rlimit) -> Rlimit {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let maximum = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let maximum = maximum.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().nth(4);
    prlimit(pid, Resource::Nofile, Rlimit { maximum: maximum.unwrap().parse().ok(), ..limit }).unwrap()
}

/// A DNS server that answers 127.0.0.1 for every name.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            // A query is 12 bytes of header, the name in labels, then 4 bytes of type and class.
            let end = 12 + packet[12..length].iter().position(|byte| *byte == 0).unwrap() + 5;
            let is_a = packet[end - 4..end - 2] == [0, 1];
            let mut answer = packet[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            answer.extend(&packet[12..end]);
            if is_a {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 127, 0, 0, 1]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    address
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap()
}

fn healthz(server: &Server) -> String {
    let mut stream = connect(server);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_server_without_file_descriptors_closes_idle_connections_and_answers() {
    let server = Server::builder().flags(&["--max-connections", "10000"]).start();
    leave_files(&server, 20);
    let idle: Vec<_> = (0..100).map(|_| connect(&server)).collect();
    assert!(healthz(&server).starts_with("HTTP/1.1 200"));
    server.wait_for_log("could not accept a connection");
    drop(idle);
}

#[test]
fn idle_connections_leave_file_descriptors_for_runs() {
    let sink = Sink::start();
    let flags = ["--max-connections", "20", "--slots", "10", "--allow-webhook-range", "127.0.0.0/8"];
    let server = Server::builder().flags(&flags).start();
    leave_files(&server, 60);
    let idle: Vec<_> = (0..300).map(|_| connect(&server)).collect();
    server.everytick(&["job", "create", "ticks", "--every", "1s", "--url", &sink.url()]).ok();
    sink.wait_for(3);
    assert!(healthz(&server).starts_with("HTTP/1.1 200"));
    let failed = server.everytick(&["run", "list", "--status", "failed", "--output", "json"]).json();
    assert_eq!(failed["items"], serde_json::json!([]));
    drop(idle);
}

#[test]
fn workers_that_long_poll_on_all_connections_do_not_block_a_health_check() {
    let server = Server::builder().flags(&["--max-connections", "8"]).start();
    let body = r#"{"worker": "w", "limit": 1, "wait": "20s"}"#;
    let head = "POST /api/v1/queues/q/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut waiting: Vec<_> = (0..8).map(|_| connect(&server)).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(request.as_bytes()).unwrap());
    assert!(healthz(&server).starts_with("HTTP/1.1 200"));
    // The first claims keep waiting. Two connections are reserved for short requests, so the claims on them are refused.
    let refused = wait_for("the refused claims", || {
        let busy = waiting.iter().filter(|stream| {
            stream.set_nonblocking(true).unwrap();
            let mut answer = [0; 12];
            stream.peek(&mut answer).is_ok_and(|_| answer.starts_with(b"HTTP/1.1 503"))
        });
        Some(busy.count()).filter(|count| *count > 0)
    });
    assert!(refused <= 2, "{refused}");
}

#[test]
fn a_run_whose_lookup_gets_no_file_descriptor_is_released_unspent() {
    let (sink, dns) = (Sink::start(), name_server().to_string());
    let server = Server::builder().flags(&["--allow-webhook-range", "127.0.0.0/8", "--dns-server", &dns]).start();
    let url = sink.url().replace("127.0.0.1", "hook.test");
    server.everytick(&["job", "create", "named", "--max-retries", "0", "--url", &url]).ok();
    let mut stream = connect(&server);
    let mut ask = |request: &str, status: &str| {
        stream
            .write_all(format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .unwrap();
        let mut answer = vec![0; 64 * 1024];
        let length = stream.read(&mut answer).unwrap();
        assert!(answer.starts_with(status.as_bytes()), "{}", String::from_utf8_lossy(&answer[..length]));
    };
    ask("GET /api/v1/jobs/named", "HTTP/1.1 200");
    // Below the number of open files, so the server cannot open another one.
    let before = set_file_limit(&server, Rlimit { current: Some(1), maximum: None });
    ask("POST /api/v1/jobs/named/trigger", "HTTP/1.1 201");
    server.wait_for_log("a run is released unsent: out of file descriptors");
    set_file_limit(&server, before);
    sink.wait_for(1);
    let attempts =
        sink.deliveries().iter().map(|delivery| delivery.headers["everytick-attempt"].clone()).collect::<Vec<_>>();
    assert_eq!(attempts, ["1"]);
    let failed = server.everytick(&["run", "list", "--status", "failed", "--output", "json"]).json();
    assert_eq!(failed["items"], serde_json::json!([]));
}
