//! Connections that do nothing take nothing from those that do.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::{Server, Sink};

/// Lets the server open so many files more than it has open.
fn leave_files(server: &Server, more: u64) {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    let limit = Rlimit { current: Some(open + more), maximum: Some(open + more) };
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    prlimit(pid, Resource::Nofile, limit).unwrap();
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
fn idle_connections_take_no_file_descriptor_from_a_run() {
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
