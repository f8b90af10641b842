//! Webhooks through a proxy, with the built binary: TLS checks the name of the URL although the proxy gets an address.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _, copy},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use crate::support::{Ca, Server};

/// A CONNECT proxy for literal addresses. Returns its address and the first lines of its requests.
fn proxy() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let records = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let records = Arc::clone(&records);
            thread::spawn(move || serve(stream, &records));
        }
    });
    (address, seen)
}

/// Ignores a broken connection: the sender reports it.
fn serve(stream: TcpStream, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    let to: SocketAddr = first.split(' ').nth(1)?.parse().ok()?;
    seen.lock().unwrap().push(first.trim().to_owned());
    let mut receiver = TcpStream::connect(to).ok()?;
    let (mut back, mut client) = (receiver.try_clone().ok()?, stream);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    thread::spawn(move || {
        let _ = copy(&mut back, &mut client);
        let _ = client.shutdown(Shutdown::Both);
    });
    copy(&mut reader, &mut receiver).ok()?;
    receiver.shutdown(Shutdown::Write).ok()
}

#[test]
fn tls_through_a_proxy_checks_the_name_of_the_url() {
    // The receiver is another everytick server. It answers webhooks of any server with 403, so an answer proves that TLS accepted
    // its certificate.
    let (ca, files) = (Ca::new("servers"), tempfile::tempdir().unwrap());
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let own = ca.issue("receiver", &["localhost"]);
    let (cert, key) = (file("cert.pem", &own.cert), file("key.pem", &own.key));
    let receiver = Server::builder().flags(&["--tls-cert", &cert, "--tls-key", &key]).start();
    let port = receiver.url().rsplit(':').next().unwrap().to_owned();
    let (address, seen) = proxy();
    let dir = tempfile::tempdir().unwrap();
    let section = format!("[egress]\nallow_ranges = [\"127.0.0.0/8\"]\nproxy = \"http://{address}\"\n");
    fs::write(dir.path().join("everytick.toml"), section).unwrap();
    let server = Server::builder().dir(dir).env("SSL_CERT_FILE", &file("ca.pem", &ca.pem())).start();
    let error = |job: &str, host: &str| {
        let url = format!("https://{host}:{port}/hook");
        server.everytick(&["job", "create", job, "--url", &url, "--max-retries", "0"]).ok();
        server.everytick(&["job", "trigger", job, "--wait"]).failed(1);
        let runs = server.everytick(&["run", "list", "--job", job, "-o", "json"]).json();
        runs["items"][0]["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(error("by-name", "localhost"), "the receiver answered 403 Forbidden");
    assert_eq!(*seen.lock().unwrap(), [format!("CONNECT 127.0.0.1:{port} HTTP/1.1")]);
    let wrong = error("by-address", "127.0.0.1");
    assert!(wrong.contains("certificate"), "the certificate is not for this address: {wrong}");
}
