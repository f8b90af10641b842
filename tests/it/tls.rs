//! A server with TLS: clients with the right and the wrong certificates, and a certificate that is replaced while it runs.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::support::{Ca, Done, Pair, Server, everytick, everytick_command, wait_for};

/// A folder with the files of an authority, a server and a client.
struct Files {
    ca: Ca,
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { ca: Ca::new("test authority"), dir: tempfile::tempdir().unwrap() };
        fs::write(files.dir.path().join("ca.pem"), files.ca.pem()).unwrap();
        files.write("server", &files.ca.issue("server", &["localhost", "127.0.0.1"]));
        files.write("worker", &files.ca.issue("worker-1", &["worker-1.example.org"]));
        files
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, pair: &Pair) {
        fs::write(self.path(&format!("{name}.pem")), &pair.cert).unwrap();
        let key = self.path(&format!("{name}.key"));
        fs::write(&key, &pair.key).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn serve(&self, more: &[&str]) -> Server {
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        let flags = [&["--tls-cert", &cert, "--tls-key", &key], more].concat();
        Server::builder().flags(&flags).start()
    }
}

/// Runs a client command on the server with this URL.
fn call(url: &str, flags: &[&str], command: &[&str]) -> Done {
    everytick(&[&["--server", url], flags, command].concat())
}

fn metric(server: &Server, files: &Files, name: &str) -> f64 {
    let url = format!("{}/metrics", server.url());
    let curl = Command::new("curl").args(["-sS", "--cacert", &files.path("ca.pem"), &url]).output().unwrap();
    let text = Done::from(curl).ok();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.trim().parse().unwrap()
}

#[test]
fn a_command_and_a_worker_use_a_server_with_a_private_authority() {
    let files = Files::new();
    let server = files.serve(&[]);
    let url = server.url();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let ca = files.path("ca.pem");
    call(url, &["--ca-file", &ca], &["job", "create", "hello", "--every", "1d", "--queue", "hello"]).ok();
    call(url, &["--ca-file", &ca], &["job", "trigger", "hello"]).ok();
    let mut worker = everytick_command(Path::new("."))
        .env("EVERYTICK_CA_FILE", &ca)
        .args(["--server", url, "worker", "--queue", "hello", "--", "echo", "hello"])
        .spawn()
        .unwrap();
    wait_for("the run to succeed", || {
        let runs = call(url, &["--ca-file", &ca], &["job", "runs", "hello", "-o", "json"]).json();
        (runs["items"][0]["state"] == "succeeded").then_some(())
    });
    worker.kill().unwrap();
    worker.wait().unwrap();
    // The name of the host is checked: the certificate has it too.
    let by_name = url.replace("127.0.0.1", "localhost");
    call(&by_name, &["--ca-file", &ca], &["job", "get", "hello"]).ok();
}

#[test]
fn an_address_that_other_hosts_reach_is_served_to_callers_with_a_token() {
    let files = Files::new();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let create = ["token", "create", "first", "--role", "admin", "--data-dir", "data"];
    let token = Done::from(everytick_command(dir.path()).args(create).output().unwrap()).ok();
    let (cert, key, ca) = (files.path("server.pem"), files.path("server.key"), files.path("ca.pem"));
    let public = ["--listen", "0.0.0.0:0", "--auth", "required", "--public-url", "https://jobs.example.org"];
    let flags = [&public[..], &["--tls-cert", &cert, "--tls-key", &key]].concat();
    let server = Server::builder().flags(&flags).dir(dir).start();
    let banner = server.banner();
    let port = banner.lines().find_map(|line| line.trim().strip_prefix("listening on https://0.0.0.0:"));
    let url = format!("https://127.0.0.1:{}", port.unwrap());
    let list = |token: Option<&str>| -> Done {
        let mut command = everytick_command(server.dir());
        command.args(["--server", &url, "--ca-file", &ca, "job", "list"]);
        token.map(|token| command.env("EVERYTICK_TOKEN", token.trim()));
        command.output().unwrap().into()
    };
    let refused = list(None).failed(1);
    assert!(refused.contains("everytick login"), "{refused}");
    list(Some(&token)).ok();
}

#[test]
fn a_failed_tls_connection_names_the_host_the_reason_and_the_remedy() {
    let files = Files::new();
    files.write("server", &files.ca.issue("server", &["127.0.0.1"]));
    let (server, plain) = (files.serve(&[]), Server::start());
    let (ca, other) = (files.path("ca.pem"), files.path("other.pem"));
    fs::write(&other, Ca::new("other authority").pem()).unwrap();
    let (https, http) = (server.url().to_owned(), server.url().replace("https", "http"));
    let tls_to_plain = plain.url().replace("http", "https");
    let by_wrong_name = https.replace("127.0.0.1", "localhost");
    let ca_flags = ["--ca-file", ca.as_str()];
    for (url, flags, parts) in [
        (&https, &["--ca-file", other.as_str()][..], ["was not issued by an authority in", "--ca-file"]),
        (&https, &[], ["was not issued by an authority that this system trusts", "--ca-file"]),
        (&by_wrong_name, &ca_flags, ["is not valid for \"localhost\"", "issued for: 127.0.0.1\n"]),
        (&http, &[], ["expects TLS", "write https://"]),
        (&tls_to_plain, &ca_flags, ["does not use TLS", "write http://"]),
    ] {
        let message = call(url, flags, &["job", "list"]).failed(5);
        assert!(parts.iter().all(|part| message.contains(part)) && message.contains(url.as_str()), "{message}");
        let mut worker = everytick_command(Path::new("."));
        worker.args(["--server", url]).args(flags).args(["worker", "--queue", "q", "--", "true"]);
        wait_for_stderr(worker, parts[0]);
    }
    files.write("server", &files.ca.issue_expired("server", &["127.0.0.1"]));
    server.signal("HUP");
    let message = wait_for("the expired certificate", || {
        let done = call(&https, &ca_flags, &["job", "list"]);
        (done.code == 5).then_some(done.stderr)
    });
    assert!(message.contains("has expired") && message.contains("--tls-cert") && message.contains(&https), "{message}");
}

/// Starts a command and waits until it writes this text to stderr.
fn wait_for_stderr(mut command: Command, text: &str) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = command.stderr(log.reopen().unwrap()).spawn().unwrap();
    wait_for(&format!("a worker to write {text:?}"), || {
        fs::read_to_string(log.path()).unwrap().contains(text).then_some(())
    });
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_client_certificate_may_be_required() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let server = files.serve(&["--tls-client-ca", &ca, "--tls-client-auth", "required"]);
    files.write("expired", &files.ca.issue_expired("worker-1", &["worker-1.example.org"]));
    files.write("other", &Ca::new("other authority").issue("worker-1", &["worker-1.example.org"]));
    let with = |name: &str| {
        let (cert, key) = (files.path(&format!("{name}.pem")), files.path(&format!("{name}.key")));
        call(server.url(), &["--ca-file", &ca, "--client-cert", &cert, "--client-key", &key], &["job", "list"])
    };
    with("worker").ok();
    let without = call(server.url(), &["--ca-file", &ca], &["job", "list"]).failed(5);
    assert!(
        without.contains("accepts only clients with a certificate") && without.contains("--client-cert"),
        "{without}"
    );
    let expired = with("expired").failed(5);
    assert!(expired.contains("it has expired") && expired.contains("expired.pem"), "{expired}");
    let other = with("other").failed(5);
    assert!(other.contains("--tls-client-ca did not issue it") && other.contains("other.pem"), "{other}");
}

#[test]
fn a_replaced_certificate_is_served_after_a_signal_and_a_bad_one_is_reported() {
    let files = Files::new();
    let server = files.serve(&[]);
    let left = |server: &Server| metric(server, &files, "everytick_tls_cert_expiry_seconds");
    let failed = |server: &Server| metric(server, &files, "everytick_tls_reload_failed");
    assert_eq!(failed(&server), 0.0);
    assert!(left(&server) > 0.0);
    fs::write(files.path("server.pem"), "not a certificate").unwrap();
    server.signal("HUP");
    wait_for("the failed reload", || (failed(&server) == 1.0).then_some(()));
    assert!(server.log().contains("the previous one stays in use"), "{}", server.log());
    call(server.url(), &["--ca-file", &files.path("ca.pem")], &["job", "list"]).ok();
    let new = Ca::new("new authority");
    fs::write(files.path("ca.pem"), new.pem()).unwrap();
    files.write("server", &new.issue("server", &["127.0.0.1"]));
    server.signal("HUP");
    wait_for("the new certificate", || {
        (call(server.url(), &["--ca-file", &files.path("ca.pem")], &["job", "list"]).code == 0).then_some(())
    });
    assert_eq!(failed(&server), 0.0);
}

#[test]
fn a_key_that_other_users_may_read_is_refused_with_the_command_to_run() {
    let files = Files::new();
    let (cert, key) = (files.path("server.pem"), files.path("server.key"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = everytick(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key]).failed(2);
    assert!(refused.contains(&format!("run: chmod 600 {key}")), "{refused}");
}

#[test]
fn a_command_reaches_a_server_through_its_unix_socket() {
    let server = Server::builder().flags(&["--listen", "unix:api.sock"]).start();
    let socket = format!("unix:{}", server.dir().join("api.sock").display());
    call(&socket, &[], &["job", "create", "hello", "--every", "1d", "--queue", "hello"]).ok();
    server.everytick(&["job", "get", "hello"]).ok();
    let missing = call("unix:/no/such.sock", &[], &["job", "list"]).failed(5);
    assert!(missing.contains("no server answers at unix:/no/such.sock"), "{missing}");
}

#[test]
fn a_rule_gives_the_owner_of_a_certificate_a_role() {
    let files = Files::new();
    files.write("other", &files.ca.issue("worker-2", &["worker-2.example.org"]));
    let rule = "[[client_cert]]\nsan = \"Worker-1.example.org\"\ntenant = \"default\"\nrole = \"viewer\"\n";
    fs::write(files.path("rules.toml"), rule).unwrap();
    let (ca, config) = (files.path("ca.pem"), files.path("rules.toml"));
    let server = files.serve(&["--config", &config, "--tls-client-ca", &ca, "--tls-client-auth", "optional"]);
    let call_as = |name: Option<&str>, command: &[&str]| {
        let pair = name.map(|name| (files.path(&format!("{name}.pem")), files.path(&format!("{name}.key"))));
        let mut flags = vec!["--ca-file", ca.as_str()];
        pair.iter()
            .for_each(|(cert, key)| flags.extend(["--client-cert", cert.as_str(), "--client-key", key.as_str()]));
        call(server.url(), &flags, command)
    };
    let me = call_as(Some("worker"), &["whoami"]).ok();
    assert!(me.contains("cert:CN=worker-1, role viewer, tenant default"), "{me}");
    call_as(Some("worker"), &["job", "list"]).ok();
    let refused = call_as(Some("worker"), &["job", "create", "j", "--queue", "q"]).failed(1);
    assert!(refused.contains("permission"), "{refused}");
    // Without a rule a certificate is no credential, and the rule has closed the server.
    for name in [Some("other"), None] {
        let refused = call_as(name, &["job", "list"]).failed(1);
        assert!(refused.contains("everytick login"), "{refused}");
    }
}
