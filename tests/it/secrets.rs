//! Secrets from outside: key files, the way of a value from stdin to its receiver, and live logs. `canary` searches everything else.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::support::{Ca, Server, Sink, everytick_command, wait_for, with_stdin};

/// A value that occurs nowhere else. Each encoding changes some of its characters.
pub(crate) const CANARY: &str = "canary+4f1d/9b2e=77&\"z";

/// Creates a key file and returns its path.
pub(crate) fn keygen(dir: &Path, name: &str) -> String {
    let path = dir.join(name).display().to_string();
    let done = everytick_command(dir).args(["secret", "keygen", "--file", &path]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    path
}

pub(crate) fn set(server: &Server, name: &str, value: &str, flags: &[&str]) {
    with_stdin(&mut server.command(&[&["secret", "set", name], flags].concat()), value).ok();
}

/// A command on the stopped server's database.
fn offline(dir: &Path, args: &[&str]) -> crate::support::Done {
    let mut command = everytick_command(dir);
    command.args(args).args(["--data-dir", "data"]).stdin(Stdio::null()).output().unwrap().into()
}

/// Every form in which the value could appear.
pub(crate) fn forms(value: &str) -> Vec<Vec<u8>> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let percent: String = value
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let json = serde_json::to_string(value).unwrap();
    let texts = [value.to_owned(), STANDARD.encode(value), percent, json.trim_matches('"').to_owned()];
    texts.into_iter().map(String::into_bytes).collect()
}

/// Panics if the bytes contain the value in any form.
fn assert_absent(what: &str, bytes: &[u8]) {
    for form in forms(CANARY) {
        let found = bytes.windows(form.len()).position(|part| part == form);
        assert_eq!(found, None, "{what} contains {}", String::from_utf8_lossy(&form));
    }
}

#[test]
fn a_key_file_is_created_for_its_owner_alone_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = keygen(dir.path(), "key");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("etkey1:") && text.trim().len() == 51, "{text}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = everytick_command(dir.path()).args(["secret", "keygen", "--file", &path]).output().unwrap();
    assert_eq!((again.status.code(), fs::read_to_string(&path).unwrap()), (Some(2), text));
}

#[test]
fn the_live_log_of_a_command_has_no_value() {
    let keys = tempfile::tempdir().unwrap();
    let key = keygen(keys.path(), "key");
    let server = Server::builder().flags(&["--secret-key-files", &key, "--enable-shell"]).start();
    set(&server, "canary", CANARY, &["--kind", "shell"]);
    // The command waits for the file after its output, so that the log is read while the command runs.
    let script = "echo \"start $KEY end\"; while [ ! -e go ]; do sleep 0.05; done";
    let (dir, env) = (server.dir().display().to_string(), "KEY={{ secrets.canary }}");
    server.everytick(&["job", "create", "cmd", "--shell", script, "--env", env, "--workdir", &dir]).ok();
    let run = server.everytick(&["job", "trigger", "cmd", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut follow = server.command(&["run", "log", &run]).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = follow.stdout.take().unwrap();
    let reader = std::thread::spawn({
        let log = Arc::clone(&log);
        move || {
            let mut chunk = [0; 1024];
            while let Ok(read @ 1..) = std::io::Read::read(&mut pipe, &mut chunk) {
                log.lock().unwrap().extend_from_slice(&chunk[..read]);
            }
        }
    });
    let text = || String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
    wait_for("the live log", || text().contains("start ******** end").then_some(()));
    fs::write(server.dir().join("go"), "").unwrap();
    follow.wait().unwrap();
    reader.join().unwrap();
    assert_absent("the live log", &log.lock().unwrap());
}

#[test]
fn a_missing_or_wrong_key_stops_the_start_and_names_the_key() {
    let keys = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| keygen(keys.path(), name));
    let server = Server::builder().flags(&["--secret-key-files", &one]).start();
    set(&server, "a", CANARY, &["--host", "example.org"]);
    let dir = server.stop().0;
    let start = |flags: &[&str]| {
        let mut command = everytick_command(dir.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).args(flags).stdin(Stdio::null());
        let done: crate::support::Done = command.output().unwrap().into();
        done.failed(2)
    };
    for flags in [&[][..], &["--secret-key-files", &other]] {
        let message = start(flags);
        assert!(message.contains("encrypted with the key ") && message.contains("--secret-key-files"), "{message}");
    }
    fs::set_permissions(&one, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(start(&["--secret-key-files", &one]).contains("chmod 600"));
    fs::set_permissions(&one, fs::Permissions::from_mode(0o600)).unwrap();
    let both = format!("{other},{one}");
    let server = Server::builder().dir(dir).flags(&["--secret-key-files", &both]).start();
    assert_eq!(server.everytick(&["secret", "get", "a", "-o", "json"]).json()["version"], 1);
}

#[test]
fn after_a_rekey_the_old_key_is_not_needed() {
    let keys = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| keygen(keys.path(), name));
    let sink = Sink::start();
    let flags = ["--allow-webhook-range", "127.0.0.0/8"];
    let server = Server::builder().flags(&flags).flags(&["--secret-key-files", &old]).start();
    for name in ["a", "b"] {
        set(&server, name, CANARY, &["--host", "127.0.0.1"]);
    }
    let (url, header) = (sink.url(), "Authorization: {{ secrets.a }}");
    server.everytick(&["job", "create", "j", "--url", &url, "--header", header]).ok();
    let dir = server.stop().0;
    let both = format!("{new},{old}");
    let rekey = ["secret", "rekey", "--secret-key-files", &both, "-o", "json"];
    let done = offline(dir.path(), &rekey).json();
    assert_eq!((&done["versions"], done["removed_keys"].as_array().unwrap().len()), (&json!(2), 1), "{done}");
    assert_eq!(offline(dir.path(), &rekey).json()["versions"], 0, "it can be repeated");
    let server = Server::builder().dir(dir).flags(&flags).flags(&["--secret-key-files", &new]).start();
    server.everytick(&["job", "trigger", "j", "--wait"]).ok();
    assert_eq!(sink.wait_for(1)[0].headers["authorization"], CANARY);
}

#[test]
fn credentials_in_jobs_are_imported_once() {
    let keys = tempfile::tempdir().unwrap();
    let key = keygen(keys.path(), "key");
    let sink = Sink::start();
    let flags = ["--allow-webhook-range", "127.0.0.0/8"];
    let server = Server::builder().flags(&flags).start();
    let signing = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDyzJ6Zr3qPX8=";
    let header = format!("X-Api-Key: {CANARY}");
    let create = ["job", "create", "web", "--url", &sink.url(), "--header", &header, "--secret", signing];
    server.everytick(&[&create[..], &["--header", "Accept: text/plain"]].concat()).ok();
    let dir = server.stop().0;
    let import = ["secret", "import-inline", "--secret-key-files", &key, "-o", "json"];
    let listed = |done: Value| -> Vec<(String, String)> {
        let items = done["items"].as_array().unwrap().clone();
        let text = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
        items.iter().map(|item| (text(item, "field"), text(item, "secret"))).collect()
    };
    let expected = [("secret", "job.web.secret"), ("headers.X-Api-Key", "job.web.header.X-Api-Key")]
        .map(|(field, secret)| (field.to_owned(), secret.to_owned()));
    assert_eq!(listed(offline(dir.path(), &[&import[..], &["--dry-run"]].concat()).json()), expected);
    assert_eq!(listed(offline(dir.path(), &import).json()), expected, "the dry run has changed nothing");
    assert_eq!(listed(offline(dir.path(), &import).json()), [], "nothing is left");
    let flags = [&flags[..], &["--secret-key-files", &key, "--inline-secrets", "refuse"]].concat();
    let server = Server::builder().dir(dir).flags(&flags).start();
    let job = server.everytick(&["job", "get", "web", "-o", "json"]).json();
    assert_eq!(job["target"]["http"]["headers"]["X-Api-Key"], "{{ secrets.job.web.header.X-Api-Key }}");
    assert_eq!(
        (&job["target"]["http"]["secret"], &job["version"]),
        (&json!("{{ secrets.job.web.secret }}"), &json!(2))
    );
    server.everytick(&["job", "trigger", "web", "--wait"]).ok();
    let delivery = &sink.wait_for(1)[0];
    assert_eq!((delivery.headers["x-api-key"].as_str(), delivery.headers["accept"].as_str()), (CANARY, "text/plain"));
    assert!(delivery.headers["webhook-signature"].starts_with("v1,"));
    let create = ["job", "create", "more", "--url", "https://example.org", "--header", "Authorization: x"];
    assert!(server.everytick(&create).failed(1).contains("everytick secret set"));
}

#[test]
fn a_secret_that_may_no_longer_be_sent_to_a_host_fails_the_attempt() {
    let keys = tempfile::tempdir().unwrap();
    let key = keygen(keys.path(), "key");
    let sink = Sink::start();
    let flags = ["--allow-webhook-range", "127.0.0.0/8", "--secret-key-files", &key];
    let server = Server::builder().flags(&flags).start();
    set(&server, "a", CANARY, &["--host", "127.0.0.1"]);
    let create = ["job", "create", "j", "--url", &sink.url(), "--header", "Authorization: {{ secrets.a }}"];
    server.everytick(&create).ok();
    set(&server, "a", CANARY, &["--host", "example.org"]);
    server.everytick(&["job", "trigger", "j", "--wait"]).failed(1);
    let run = &server.everytick(&["run", "list", "-o", "json"]).json()["items"][0];
    assert!(run["error"].as_str().unwrap().contains("may not be sent to 127.0.0.1"), "{run}");
    assert_eq!(run["attempt"], 1, "a retry would not help");
    let refused = server.everytick(&["secret", "delete", "a"]).failed(4);
    assert!(refused.contains("target.http.headers.Authorization of the job j refers to it"), "{refused}");
    server.everytick(&["secret", "delete", "a", "--force"]).ok();
    assert!(sink.deliveries().is_empty());
}

#[test]
fn a_receiver_that_requires_a_client_certificate_gets_the_one_in_the_secret() {
    // The receiver is another everytick server, which accepts only clients of its authority. It answers webhooks of any server
    // with 403, so an answer proves that it accepted the certificate.
    let (ca, clients) = (Ca::new("servers"), Ca::new("clients"));
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let own = ca.issue("receiver", &["127.0.0.1", "localhost"]);
    let (cert, key) = (file("cert.pem", &own.cert), file("key.pem", &own.key));
    let (client_ca, server_ca) = (file("clients.pem", &clients.pem()), file("servers.pem", &ca.pem()));
    let receiver = Server::builder()
        .flags(&[
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
            "--tls-client-ca",
            &client_ca,
            "--tls-client-auth",
            "required",
        ])
        .start();
    let operator = keygen(files.path(), "operator");
    let server = Server::builder()
        .flags(&["--allow-webhook-range", "127.0.0.0/8", "--secret-key-files", &operator])
        .env("SSL_CERT_FILE", &server_ca)
        .start();
    let url = format!("{}/hook", receiver.url());
    for (name, authority) in [("good", &clients), ("foreign", &ca)] {
        let pair = authority.issue("client", &["client"]);
        set(&server, name, &format!("{}{}", pair.cert, pair.key), &["--host", "127.0.0.1"]);
        let reference = format!("{{{{ secrets.{name} }}}}");
        let create = ["job", "create", name, "--url", &url, "--client-cert-secret", &reference, "--max-retries", "0"];
        server.everytick(&create).ok();
    }
    server.everytick(&["job", "create", "none", "--url", &url, "--max-retries", "0"]).ok();
    let error = |job: &str| {
        server.everytick(&["job", "trigger", job, "--wait"]).failed(1);
        let runs = server.everytick(&["run", "list", "--job", job, "-o", "json"]).json();
        runs["items"][0]["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(error("good"), "the receiver answered 403 Forbidden");
    for job in ["foreign", "none"] {
        let error = error(job);
        assert!(!error.contains("403") && error.contains("127.0.0.1"), "{error}");
    }
}

#[test]
fn a_later_report_of_the_receiver_is_stored_without_the_value() {
    let keys = tempfile::tempdir().unwrap();
    let key = keygen(keys.path(), "key");
    let sink = Sink::answering(|_| "202 Accepted\r\neverytick-async: true".to_owned());
    let flags = ["--allow-webhook-range", "127.0.0.0/8", "--secret-key-files", &key];
    let server = Server::builder().flags(&flags).start();
    set(&server, "a", CANARY, &["--host", "127.0.0.1"]);
    let create = ["job", "create", "j", "--url", &sink.url(), "--header", "Authorization: {{ secrets.a }}"];
    server.everytick(&[&create[..], &["--max-retries", "0"]].concat()).ok();
    let id = server.everytick(&["job", "trigger", "j", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    let delivery = &sink.wait_for(1)[0];
    let get = || server.everytick(&["run", "get", &id, "-o", "json"]).json();
    wait_for("the receiver to own the claim", || (get()["worker"] == "http").then_some(()));
    let fence: i64 = delivery.headers["everytick-fence"].parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let post = |path: &str, body: Value| {
        let url = format!("{}/api/v1/runs/{id}/{path}", server.url());
        runtime
            .block_on(async { reqwest::Client::new().post(&url).json(&body).send().await.unwrap().status().as_u16() })
    };
    assert_eq!(post("log", json!({ "fence": fence, "text": format!("log {CANARY}\n") })), 200);
    let report = json!({
        "fence": fence, "outcome": "failed", "error": format!("bad {CANARY}"), "output": format!("out {CANARY}"),
    });
    assert_eq!(post("settle", report.clone()), 200);
    let run = get();
    assert_eq!(run["error"], "bad ********", "{run}");
    assert_absent("the run", run.to_string().as_bytes());
    assert!(run["output"].as_str().unwrap().contains("log ********"), "{run}");
    assert_eq!(post("settle", report), 200, "a repeated report gets the same answer");
}
