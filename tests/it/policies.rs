//! Overlap policies, cancels that reach the running work, and redriving of failed runs.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::Path,
    time::Duration,
};

use everytick_store::conformance::server::Server as Postgres;
use serde_json::Value;

use crate::support::{Server, Sink, wait_for};

/// Prints `begun`, starts a child process, and runs until a file `go-RUN` exists or a minute has passed.
const WORK: &str = "echo begun; sleep 60 & echo $! > child-$EVERYTICK_RUN; mv child-$EVERYTICK_RUN pid-$EVERYTICK_RUN; n=0; \
    until [ -e go-$EVERYTICK_RUN ] || [ $n -gt 1200 ]; do n=$((n+1)); sleep 0.05; done; kill $!; echo done";

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell", "--auth", "open"]).start()
}

fn job(server: &Server, name: &str, more: &[&str]) {
    let dir = server.dir().display().to_string();
    let args = ["job", "create", name, "--workdir", &dir, "--shell", WORK];
    server.everytick(&[&args, more].concat()).ok();
}

/// Triggers a job and returns the run.
fn trigger(server: &Server, args: &[&str]) -> Value {
    server.everytick(&[&["job", "trigger", "-o", "json"], args].concat()).json()
}

fn id(run: &Value) -> String {
    run["id"].as_str().unwrap().to_owned()
}

fn run(server: &Server, id: &str) -> Value {
    server.everytick(&["run", "get", id, "-o", "json"]).json()
}

fn is(server: &Server, id: &str, state: &str) -> Value {
    wait_for(&format!("{id} to be {state}"), || Some(run(server, id)).filter(|run| run["state"] == state))
}

/// Waits for the child process that a run has started, and returns its pid.
fn child(dir: &Path, id: &str) -> u32 {
    wait_for(&format!("the child process of {id}"), || {
        fs::read_to_string(dir.join(format!("pid-{id}"))).ok()?.trim().parse().ok()
    })
}

/// Whether the process has ended, or is a zombie.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

#[test]
fn under_queue_runs_wait_in_order_and_runs_beyond_the_limit_are_skipped() {
    let server = with_shell();
    job(&server, "q", &["--overlap", "queue", "--queue-limit", "2"]);
    let made = server.everytick(&["job", "get", "q", "-o", "json"]).json();
    assert_eq!((&made["overlap"], &made["queue_limit"]), (&"queue".into(), &2.into()));
    assert!(server.everytick(&["job", "get", "q"]).ok().contains("queue, at most 2 waiting"));
    let first = id(&trigger(&server, &["q"]));
    is(&server, &first, "claimed");
    let (second, third) = (id(&trigger(&server, &["q"])), id(&trigger(&server, &["q"])));
    let fourth = server.everytick(&["job", "trigger", "-o", "json", "q"]);
    assert_eq!(fourth.code, 4, "{fourth:?}");
    let fourth: Value = serde_json::from_str(&fourth.stdout).unwrap();
    assert_eq!((&fourth["state"], &fourth["skip_reason"]), (&"skipped".into(), &"overlap".into()));
    let forced = id(&trigger(&server, &["q", "--force"]));
    is(&server, &forced, "claimed");
    assert_eq!(run(&server, &second)["state"], "waiting");
    for done in [&forced, &first] {
        fs::write(server.dir().join(format!("go-{done}")), "").unwrap();
        is(&server, done, "succeeded");
    }
    is(&server, &second, "claimed");
    assert_eq!(run(&server, &third)["state"], "waiting");
    fs::write(server.dir().join(format!("go-{second}")), "").unwrap();
    is(&server, &third, "claimed");

    // `job cancel` cancels all open runs; the job itself continues.
    let pid = child(server.dir(), &third);
    let fifth = id(&trigger(&server, &["q"]));
    assert_eq!(server.everytick(&["job", "cancel", "q"]).ok(), "q: 2 runs cancelled, 1 of them in progress\n");
    for run in [&third, &fifth] {
        is(&server, run, "cancelled");
    }
    wait_for("the child process to end", || is_gone(pid).then_some(()));
    assert_eq!(server.everytick(&["job", "cancel", "q"]).ok(), "q: no open runs\n");
    assert_eq!(trigger(&server, &["q"])["state"], "waiting");
    server.everytick(&["job", "delete", "q", "--cancel"]).ok();
    server.everytick(&["job", "cancel", "missing"]).failed(3);
}

#[test]
fn under_cancel_previous_the_newer_run_starts_after_the_work_of_the_older_run_has_ended() {
    let server = with_shell();
    job(&server, "c", &["--overlap", "cancel_previous"]);
    let old = id(&trigger(&server, &["c"]));
    let pid = child(server.dir(), &old);
    let new = id(&trigger(&server, &["c"]));
    is(&server, &new, "claimed");
    assert!(is_gone(pid), "the child process of the older run still runs beside the newer run");
    let cancelled = run(&server, &old);
    assert_eq!(cancelled["state"], "cancelled");
    assert!(cancelled["error"].as_str().unwrap().contains(&new), "{cancelled}");
    let kept = wait_for("its output to be stored", || run(&server, &old)["output"].as_str().map(str::to_owned));
    assert!(kept.starts_with("begun\n"), "{kept}");
    assert!(server.everytick(&["run", "get", &old]).ok().contains("cancel_previous"));
    fs::write(server.dir().join(format!("go-{new}")), "").unwrap();
    is(&server, &new, "succeeded");
}

#[test]
fn under_cancel_previous_a_tick_supersedes_the_older_run() {
    let server = with_shell();
    job(&server, "c", &["--overlap", "cancel_previous", "--every", "1s"]);
    let cancelled = wait_for("two superseded runs", || {
        let list = server.everytick(&["job", "runs", "c", "--status", "cancelled", "-o", "json"]).json();
        list["items"].as_array().filter(|runs| runs.len() >= 2).cloned()
    });
    assert!(cancelled.iter().all(|run| run["error"].as_str().unwrap().contains("cancel_previous")));
    let skipped = server.everytick(&["job", "runs", "c", "--status", "skipped", "-o", "json"]).json();
    assert_eq!(skipped["items"], Value::Array(Vec::new()));
    server.everytick(&["job", "delete", "c", "--cancel"]).ok();
}

#[test]
fn each_failed_run_is_redriven_once() {
    let server = with_shell();
    let dir = server.dir().display().to_string();
    let script = "[ -e mended ] || { echo broken; exit 3; }; cat";
    server.everytick(&["job", "create", "j", "--workdir", &dir, "--shell", script]).ok();
    let mut failed = Vec::new();
    for payload in ["[1]", "[2]"] {
        failed.push(id(&trigger(&server, &["j", "--payload", payload])));
        is(&server, failed.last().unwrap(), "failed");
    }
    let since = run(&server, &failed[0])["scheduled_at"].as_str().unwrap().to_owned();
    let failed_list = server.everytick(&["run", "list", "--job", "j", "--status", "failed", "-o", "json"]).json();
    assert_eq!(failed_list["items"].as_array().unwrap().len(), 2);

    let dry = server.everytick(&["run", "redrive", "--job", "j", "--since", &since, "--dry-run"]);
    assert!(dry.stderr.contains("dry run: nothing was changed"), "{dry:?}");
    let dry = dry.ok();
    assert!(dry.contains("j: 2 runs would be created"), "{dry}");
    assert!(dry.contains("would be created") && dry.contains(&failed[1][..18]) && dry.contains("exit code 3"), "{dry}");
    let asked = ["run", "redrive", "--job", "j", "--since", &since];
    let as_json = [&asked[..], &["-o", "json"]].concat();
    let one = server.everytick(&[&as_json[..], &["--limit", "1"]].concat()).json();
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
    let again = one["items"][0]["run"].as_str().unwrap().to_owned();
    is(&server, &again, "failed");
    fs::write(server.dir().join("mended"), "").unwrap();

    // The new run of the first failed run failed too, so it is itself redriven.
    let next = one["next_from"].as_str().unwrap();
    assert_eq!(run(&server, &failed[1])["scheduled_at"], next);
    let all = server.everytick(&as_json).json();
    let items = all["items"].as_array().unwrap();
    assert_eq!((items.len(), &all["next_from"]), (3, &Value::Null));
    for item in items {
        let (of, new) = (item["failed"]["id"].as_str().unwrap(), item["run"].as_str().unwrap());
        assert_eq!(item["made"], of != failed[0], "{item}");
        if of != failed[0] {
            let redriven = is(&server, new, "succeeded");
            assert_eq!(
                (&redriven["cause"], &redriven["scheduled_at"]),
                (&"request".into(), &item["failed"]["scheduled_at"])
            );
            let payload = if of == failed[1] { "[2]" } else { "[1]" };
            assert_eq!(redriven["output"], payload);
        } else {
            assert_eq!(new, again);
        }
    }
    let table = server.everytick(&asked).ok();
    assert!(table.contains("before") && table.contains("j: 0 runs created; 3 were created before"), "{table}");
    // The redrive of the redriven run follows it.
    let short = |id: &str| id[..18].to_owned();
    let lines: Vec<&str> = table.lines().collect();
    let at = lines.iter().position(|line| line.starts_with(&short(&failed[0]))).unwrap();
    assert!(lines[at].contains(&short(&again)) && lines[at + 1].starts_with(&short(&again)), "{table}");
    let shown = server.everytick(&["run", "get", &again]).ok();
    assert!(shown.contains(&format!("it redrives the failed run {}", failed[0])), "{shown}");
    let audit = server.everytick(&["run", "list", "--job", "j", "-o", "json"]).json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 5, "a repeated call creates nothing");

    let old = server.everytick(&["run", "redrive", "--job", "j", "--since", "2020-01-01T00:00:00Z"]).failed(1);
    assert!(old.contains("from: ") && old.contains("7d"), "{old}");
    server.everytick(&["run", "redrive", "--job", "j", "--since", &since, "--limit", "1001"]).failed(1);
}

/// Accepts one request and does not answer it. The thread ends when the sender closes the connection.
fn dropped(listener: TcpListener) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(listener.accept().unwrap().0);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        reader.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut rest = Vec::new();
        if let Err(error) = reader.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    })
}

#[test]
fn a_cancel_through_another_node_stops_the_running_work() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(Postgres::shared().blank());
    let node = |name: &str, more: &[&str]| {
        let flags = ["--database-url", &database.url, "--node-name", name];
        Server::builder()
            .flags(&flags)
            .flags(&["--enable-shell", "--auth", "open", "--allow-webhook-range", "127.0.0.0/8"])
            .flags(more)
            .start()
    };
    let api_node = node("api", &["--roles", "api"]);
    let _runner = node("runner", &["--roles", "scheduler,dispatcher"]);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let gone = dropped(listener);
    api_node.everytick(&["job", "create", "hook", "--url", &url, "--timeout", "10m"]).ok();
    let hook = id(&trigger(&api_node, &["hook"]));
    is(&api_node, &hook, "claimed");
    api_node.everytick(&["run", "cancel", &hook]).ok();
    gone.join().unwrap();

    job(&api_node, "work", &[]);
    let work = id(&trigger(&api_node, &["work"]));
    let pid = child(api_node.dir(), &work);
    api_node.everytick(&["job", "cancel", "work"]).ok();
    wait_for("the child process to end", || is_gone(pid).then_some(()));
    let kept = wait_for("its output to be stored", || run(&api_node, &work)["output"].as_str().map(str::to_owned));
    assert!(kept.starts_with("begun\n"), "{kept}");
    let attempts = api_node.everytick(&["run", "attempts", &work, "-o", "json"]).json();
    assert_eq!(
        (&attempts["items"][0]["outcome"], &attempts["items"][0]["output"]),
        (&"cancelled".into(), &kept.into())
    );
}

#[test]
fn a_pause_after_410_gone_is_logged_and_audited() {
    let sink = Sink::answering(|_| "410 Gone".to_owned());
    let server = Server::builder().flags(&["--allow-webhook-range", "127.0.0.0/8"]).start();
    server.everytick(&["job", "create", "gone", "--url", &sink.url()]).ok();
    server.everytick(&["job", "trigger", "gone"]).ok();
    let paused = wait_for("the job to be paused", || {
        let job = server.everytick(&["job", "get", "gone", "-o", "json"]).json();
        (job["paused"] == true).then_some(job)
    });
    let note = paused["pause_note"].as_str().unwrap();
    let audit: Value =
        serde_json::from_str(&server.script(&format!("curl -fsS {}/api/v1/audit", server.url()))).unwrap();
    let row = audit["items"].as_array().unwrap().iter().find(|row| row["action"] == "pause").unwrap();
    assert!(row["detail"].to_string().contains(note) && row["actor"].as_str().unwrap().starts_with("node:"), "{row}");
    wait_for("the log", || server.log().contains("a job was paused: its receiver is gone").then_some(()));
}
