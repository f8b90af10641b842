//! Plants values of each kind of credential, and searches everything that the server and the commands write for them. The receivers
//! get the values.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use everytick_store::conformance::server::Server as Postgres;
use serde_json::{Value, json};

use crate::{
    secrets::{CANARY, forms, keygen, set},
    support::{Done, Server, Sink, everytick, everytick_command, wait_for, with_stdin},
};

/// Stored as a secret, and used to sign webhooks.
const SIGNING: &str = "whsec_Y2FuYXJ5LXNpZ25pbmcta2V5LTAxMjM0NTY3ODlhYmNkZWY=";
/// Stored as a secret, and used as a variable of a command.
const VARIABLE: &str = "canary/variable+8c2d=\"55\"";
/// Credentials that jobs hold themselves. The database has them, as documented; nothing else shows them.
const INLINE_HEADER: &str = "canary-inline-header-b1946ac9";
const INLINE_SIGNING: &str = "whsec_Y2FuYXJ5LWlubGluZS1rZXktZmVkY2JhOTg3NjU0MzIxMDA=";
const INLINE_VARIABLE: &str = "canary-inline-variable-2d75cc17";
/// The password in the URL of the database.
const PASSWORD: &str = "canary-database-9d5e";

/// What was planted, and everything that was written since.
struct Search {
    planted: Vec<String>,
    /// Planted values that the database may have.
    inline: Vec<String>,
    seen: Vec<(String, Vec<u8>)>,
}

impl Search {
    fn add(&mut self, what: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.seen.push((what.into(), bytes.into()));
    }

    fn add_done(&mut self, what: String, done: Done) {
        self.add(what, [done.stdout, done.stderr].concat());
    }

    /// Panics if something contains a planted value in any form. Files of the database and their backups may have inline values.
    fn assert_absent(&self) {
        let mut found = Vec::new();
        for (what, bytes) in &self.seen {
            let inline = self.inline.iter().filter(|_| !what.starts_with("database"));
            for form in self.planted.iter().chain(inline).flat_map(|value| forms(value)) {
                if bytes.windows(form.len()).any(|part| part == form) {
                    found.push(format!("{what} contains {}", String::from_utf8_lossy(&form)));
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

/// The subcommands of a command, by its help.
fn subcommands(of: &[&str]) -> Vec<String> {
    let help = everytick(&[of, &["--help"]].concat()).ok();
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let names = list.lines().take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).filter(|name| name != "help").collect()
}

/// Commands that this test does not run with `-o json`, because they print nothing of a server.
const NOT_SEARCHED: [&str; 12] = [
    "serve",
    "worker",
    "login",
    "logout",
    "access",
    "move",
    "bench",
    "completions",
    "cron",
    "recover",
    "token create",
    "token generate",
];

/// Every command that prints something of the server, with arguments.
fn commands(runs: &[String], flow: &str, backfill: &str) -> Vec<Vec<String>> {
    let lines = format!(
        "job list|job get web|job get cmd|job get inline|job next web|job runs web|job explain web|job explain cmd|\
         job update web --description x|job pause web|job resume web|job cancel web|job backfill web --from -2h --to -1h --dry-run|\
         job delete web --dry-run|job create web --queue q|job trigger q|\
         run list|run get {web}|run get {cmd}|run get {inline}|run attempts {web}|run attempts {cmd}|run explain {web}|run explain {cmd}|\
         run log {web}|run log {cmd}|run cancel {web}|run rerun {cmd}|run redrive --all --dry-run|\
         backfill list|backfill get {backfill}|backfill cancel {backfill}|\
         flow list|flow get {flow}|flow cancel {flow}|flow rerun {flow}|\
         calendar list|calendar get none|calendar set none --date 2026-12-25|calendar delete none|\
         queue list|queue get q|queue set q --concurrency 5|\
         token list|token revoke none|token rotate none|session list|session revoke none|\
         secret list|secret get canary|secret get signing|secret delete canary|secret rotate canary|secret set other|secret import-inline|\
         secret rekey|secret keygen|whoami|cluster|audit|audit list|audit export|audit --result failed",
        web = runs[0],
        cmd = runs[1],
        inline = runs[2],
    );
    lines.split('|').map(|line| line.split_whitespace().map(ToOwned::to_owned).collect()).collect()
}

#[test]
fn a_value_reaches_its_receiver_and_appears_nowhere_else() {
    search(&[], |dir| {
        let data = dir.join("data");
        let backup = dir.join("backup.db");
        fs::copy(data.join("everytick.db"), &backup).unwrap();
        let files = fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()).chain([backup]);
        files.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
    });
}

#[test]
fn a_value_appears_nowhere_with_postgresql_either() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(Postgres::shared().blank());
    let url = database.url.replace("postgres@", &format!("postgres:{PASSWORD}@"));
    assert!(url.contains(PASSWORD), "{url}");
    let dump = || {
        let script = "PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1); pg_dump \"$0\"";
        let done = Command::new("sh").args(["-c", script, &database.url]).output().unwrap();
        assert!(done.status.success() && done.stdout.len() > 10_000, "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    search(&["--database-url", &url, "--node-name", "n"], |_| vec![("dump".to_owned(), dump())]);
}

/// Plants the values, uses them, reads everything, and searches it. `database` returns the files of the stopped server.
fn search(flags: &[&str], database: impl Fn(&Path) -> Vec<(String, Vec<u8>)>) {
    let keys = tempfile::tempdir().unwrap();
    let key = keygen(keys.path(), "key");
    // The receiver repeats the path, a header and the body of the request in its answer.
    let sink = Sink::answering(|delivery| {
        let body = String::from_utf8_lossy(&delivery.body).into_owned();
        let echo = format!("{} {} {body}", delivery.path, delivery.headers["authorization"]);
        format!("500 Internal Server Error\r\ncontent-length: {}\r\n\r\n{echo}", echo.len())
    });
    let flags = [
        flags,
        &["--secret-key-files", &key, "--allow-webhook-range", "127.0.0.0/8", "--enable-shell", "--auth", "open"],
        &["--log-level", "trace", "--audit-stream", "file:audit.ndjson"],
    ]
    .concat();
    let server = Server::builder().flags(&flags).start();

    // Plant.
    let token = server.everytick(&["token", "create", "canary", "--role", "admin"]).ok().trim().to_owned();
    set(&server, "canary", CANARY, &["--host", "127.0.0.1", "--kind", "http"]);
    set(&server, "signing", SIGNING, &["--host", "127.0.0.1"]);
    set(&server, "variable", VARIABLE, &["--kind", "shell"]);
    let url = format!("{}?key={{{{ secrets.canary }}}}", sink.url());
    let header = "Authorization: Bearer {{ secrets.canary }}";
    let payload = r#"{"key":"{{ secrets.canary }}"}"#;
    let create = ["job", "create", "web", "--url", &url, "--header", header, "--payload", payload];
    let signed = ["--payload-secrets", "--secret", "{{ secrets.signing }}", "--max-retries", "0"];
    server.everytick(&[&create[..], &signed].concat()).ok();
    // Printed in two parts, so that the value crosses chunks.
    let script = "printf 'a %.10s' \"$KEY\"; sleep 0.3; printf '%s b\\n' \"${KEY#??????????}\"; echo \"$KEY\" >&2; \
                  echo \"$KEY\" | base64; exit 3";
    let env = format!("PASSWORD={INLINE_VARIABLE}");
    let create = ["job", "create", "cmd", "--shell", script, "--env", "KEY={{ secrets.variable }}", "--env", &env];
    server.everytick(&[&create[..], &["--max-retries", "0"]].concat()).ok();
    let header = format!("Authorization: Bearer {INLINE_HEADER}");
    let silent = Sink::start();
    let create = ["job", "create", "inline", "--url", &silent.url(), "--header", &header, "--secret", INLINE_SIGNING];
    server.everytick(&create).ok();
    server.everytick(&["job", "create", "q", "--queue", "q"]).ok();
    server.everytick(&["job", "create", "follower", "--queue", "q", "--after", "q"]).ok();
    server.everytick(&["job", "create", "hourly", "--every", "1h", "--queue", "q"]).ok();
    let inline = [INLINE_HEADER, INLINE_SIGNING, INLINE_VARIABLE].map(ToOwned::to_owned).to_vec();
    let mut planted: Vec<String> = [CANARY, SIGNING, VARIABLE, PASSWORD].map(ToOwned::to_owned).to_vec();
    // The first characters of a token are shown.
    planted.push(token[8..].to_owned());
    let mut search = Search { planted, inline, seen: Vec::new() };

    // Use.
    let mut runs = Vec::new();
    for job in ["web", "cmd", "inline"] {
        let triggered = server.everytick(&["job", "trigger", job, "--wait", "-o", "json"]);
        runs.push(serde_json::from_str::<Value>(&triggered.stdout).unwrap()["id"].as_str().unwrap().to_owned());
        search.add_done(format!("trigger {job}"), triggered);
    }
    let id = |args: &[&str]| {
        let answer = server.everytick(&[args, &["-o", "json"]].concat()).json();
        answer["id"].as_str().unwrap().to_owned()
    };
    let flow = id(&["job", "trigger", "q"]);
    let backfill = id(&["job", "backfill", "hourly", "--from", "-5h", "--to", "-2h"]);

    // The receivers got the values: in a header, the body, the URL and the signature.
    let delivery = &sink.wait_for(1)[0];
    assert_eq!(delivery.headers["authorization"], format!("Bearer {CANARY}"));
    assert_eq!(serde_json::from_slice::<Value>(&delivery.body).unwrap(), json!({ "key": CANARY }));
    assert!(delivery.path.ends_with("?key=canary%2B4f1d%2F9b2e%3D77%26%22z"), "{}", delivery.path);
    assert!(delivery.headers["webhook-signature"].starts_with("v1,"));
    assert_eq!(silent.wait_for(1)[0].headers["authorization"], format!("Bearer {INLINE_HEADER}"));

    // The values in the answer and in the output were scrubbed.
    let web = server.everytick(&["run", "get", &runs[0], "-o", "json"]).json();
    assert_eq!(
        (&web["state"], &web["error"]),
        (&json!("failed"), &json!("the receiver answered 500 Internal Server Error"))
    );
    let output = web["output"].as_str().unwrap();
    assert!(output.contains("key=********") && output.contains("Bearer ********"), "{output}");
    let cmd = server.everytick(&["run", "get", &runs[1], "-o", "json"]).json();
    let output = cmd["output"].as_str().unwrap();
    // A line of stderr can come between the two parts.
    assert!(output.contains("******** b"), "{output}");
    assert_eq!(cmd["error"], "exit code 3");

    read_routes(&server, &token, &runs, &flow, &backfill, &mut search);
    refuse(&server, &token, &mut search);
    read_commands(&server, &runs, &flow, &backfill, &mut search);

    search.add("the log", server.log());
    assert!(server.log().contains("TRACE"), "the log has everything");
    let often =
        ["job", "create", "often", "--every", "1s", "--url", &url, "--header", "Authorization: {{ secrets.canary }}"];
    server.everytick(&often).ok();
    let (dir, _, log) = server.stop();
    search.add("the whole log", log);
    search.add("the log of a panic", log_of_a_panic(dir.path(), &flags));
    let stream = fs::read(dir.path().join("audit.ndjson")).unwrap();
    assert!(!stream.is_empty());
    search.add("the stream of the trail", stream);
    for (name, bytes) in database(dir.path()) {
        search.add(format!("database {name}"), bytes);
    }
    search.assert_absent();
    // Otherwise the search has read nothing: masks are shown in many answers.
    let text = search.seen.iter().any(|(_, bytes)| bytes.windows(8).any(|part| part == b"********"));
    assert!(text && search.seen.len() > 100, "{}", search.seen.len());
}

/// Starts a server that panics when it settles a run, and returns its log.
fn log_of_a_panic(dir: &Path, flags: &[&str]) -> Vec<u8> {
    let path = dir.join("log-of-a-panic");
    let mut child = everytick_command(dir)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data", "--drain-timeout", "1s"])
        .args(flags)
        .env("EVERYTICK_LOOP_FAULT", "panic:settle")
        .stdout(Stdio::null())
        .stderr(fs::File::create(&path).unwrap())
        .spawn()
        .unwrap();
    wait_for("the end after a panic", || child.try_wait().unwrap());
    let log = fs::read(&path).unwrap();
    assert!(String::from_utf8_lossy(&log).contains("panicked at"), "{}", String::from_utf8_lossy(&log));
    log
}

/// Reads every GET route of the API document, with the headers of its answer.
fn read_routes(server: &Server, token: &str, runs: &[String], flow: &str, backfill: &str, search: &mut Search) {
    let document: Value = serde_json::from_str(&server.script("curl -fsS $EVERYTICK_SERVER/openapi.json")).unwrap();
    let mut paths = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        if item.get("get").is_none() {
            continue;
        }
        let ids: Vec<&str> = match path.split('/').nth(3) {
            Some("jobs") => vec!["web", "cmd", "inline"],
            Some("runs") => runs.iter().map(String::as_str).collect(),
            Some("flows") => vec![flow],
            Some("backfills") => vec![backfill],
            Some("secrets") => vec!["canary", "signing", "variable"],
            Some("queues") => vec!["q"],
            _ => vec!["none"],
        };
        for id in ids {
            let (begin, rest) = path.split_once('{').map_or((path.as_str(), ""), |(begin, rest)| (begin, rest));
            let rest = rest.split_once('}').map_or("", |(_, rest)| rest);
            let named = if path.contains('{') { id } else { "" };
            paths.insert(format!("{begin}{named}{rest}"));
        }
    }
    paths.extend(["/api/v1/audit?format=ndjson".to_owned(), "/api/v1/runs?include=payload&limit=1000".to_owned()]);
    assert!(paths.len() > 40, "{paths:?}");
    for path in paths {
        // An admin token may not read the metrics; without a token everything is allowed, because the API is open.
        let credential = if path == "/metrics" { String::new() } else { format!("Bearer {token}") };
        let auth = format!("authorization:{credential}");
        let url = format!("{}{path}", server.url());
        let done = Command::new("curl").args(["-sS", "-i", "-m", "20", "-H", &auth, &url]).output().unwrap();
        assert!(done.stdout.starts_with(b"HTTP/1.1 "), "{path}");
        assert!(path != "/metrics" || done.stdout.starts_with(b"HTTP/1.1 200"), "the metrics");
        search.add(format!("GET {path}"), [done.stdout, done.stderr].concat());
    }
}

/// Sends the values where they are wrong: no error message repeats them.
fn refuse(server: &Server, token: &str, search: &mut Search) {
    let user = format!("https://me:{PASSWORD}@example.org/");
    let header = format!("Bad Name: {CANARY}");
    let database = format!("mysql://me:{PASSWORD}@db/x");
    let variable = format!("={VARIABLE}");
    for args in [
        &["job", "create", "x", "--url", &user][..],
        &["job", "create", "x", "--url", "https://example.org", "--header", &header],
        &["job", "create", "x", "--url", "https://example.org", "--secret", &SIGNING[..20]],
        &["job", "create", "x", "--env", &variable, "--", "true"],
        &["job", "create", "x", "--url", "https://example.com", "--header", "authorization: {{ secrets.canary }}"],
        &["serve", "--database-url", &database],
        &["serve", "--audit-stream", &user],
        &["recover", "--database-url", &database],
    ] {
        let done = server.everytick(args);
        assert_ne!(done.code, 0, "{args:?}");
        search.add_done(format!("refused: {}", args[..3].join(" ")), done);
    }
    for (value, flags) in [(CANARY, &["--host", "not a host"][..]), (VARIABLE, &["--kind", "none"])] {
        let done = with_stdin(&mut server.command(&[&["secret", "set", "wrong"], flags].concat()), value);
        assert_ne!(done.code, 0);
        search.add_done("refused: secret set".to_owned(), done);
    }
    // The last character is wrong.
    let wrong = format!("{}{}", &token[..41], if token.ends_with('0') { '1' } else { '0' });
    let mut command = server.command(&["job", "list"]);
    command.env("XDG_CONFIG_HOME", server.dir().join("none")).env("EVERYTICK_TOKEN", &wrong);
    search.add_done("refused: a wrong token".to_owned(), command.output().unwrap().into());
    let login = with_stdin(&mut server.command(&["login"]), &wrong);
    assert_ne!(login.code, 0);
    search.add_done("refused: login".to_owned(), login);
}

/// Runs every command with `-o json`, and as a table.
fn read_commands(server: &Server, runs: &[String], flow: &str, backfill: &str, search: &mut Search) {
    let commands = commands(runs, flow, backfill);
    let begins = |name: &str| {
        let words: Vec<&str> = name.split(' ').collect();
        commands.iter().any(|args| args.iter().zip(&words).all(|(arg, word)| arg == word))
    };
    for command in subcommands(&[]) {
        if NOT_SEARCHED.contains(&command.as_str()) {
            continue;
        }
        let inner = subcommands(&[&command]);
        let names = if inner.is_empty() {
            vec![command.clone()]
        } else {
            inner.iter().map(|one| format!("{command} {one}")).collect()
        };
        for name in names.iter().filter(|name| !NOT_SEARCHED.contains(&name.as_str())) {
            assert!(begins(name), "add `{name}` to the commands of this test");
        }
    }
    for args in commands {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for format in ["json", "table"] {
            // Commands that need a file, a key or a confirmation say so; that is read as well.
            let mut command = everytick_command(server.dir());
            command.env("EVERYTICK_SERVER", server.url()).args(&args).args(["-o", format]).stdin(Stdio::null());
            search.add_done(format!("{} -o {format}", args.join(" ")), command.output().unwrap().into());
        }
    }
    wait_for("the stream of the trail", || server.dir().join("audit.ndjson").exists().then_some(()));
}
