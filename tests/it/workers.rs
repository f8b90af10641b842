//! Queue workers against a real server: `everytick worker`, the Python example and the worker crate.

use std::{
    collections::BTreeSet,
    io::Read,
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use everytick_worker::{Context, Failure, Worker};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::{Server, WAIT_MAX, everytick, pause, wait_for};

/// The limit of waiting runs of one job.
const RUNS: usize = 1_000;
/// Enough for 1,000 runs with three requests each, on a busy machine.
const LONG_WAIT_MAX: Duration = Duration::from_secs(300);

/// A child process with the lines that it writes to stderr. Killed when dropped.
struct Started {
    child: Child,
    lines: Arc<Mutex<String>>,
}

impl Started {
    fn new(command: &mut std::process::Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stderr, lines) = (child.stderr.take().unwrap(), Arc::<Mutex<String>>::default());
        // Read to the end, so that a full pipe never blocks the child.
        std::thread::spawn({
            let lines = lines.clone();
            move || {
                let mut chunk = [0; 4096];
                while let Ok(read @ 1..) = stderr.read(&mut chunk) {
                    *lines.lock().unwrap() += &String::from_utf8_lossy(&chunk[..read]);
                }
            }
        });
        Self { child, lines }
    }

    fn worker(server: &Server, args: &[&str]) -> Self {
        Self::new(&mut server.command(&[&["worker", "--queue", "emails"], args].concat()))
    }

    fn lines(&self) -> String {
        self.lines.lock().unwrap().clone()
    }

    fn wait_for_line(&self, text: &str) {
        let found = (0..WAIT_MAX.as_millis() / 20).any(|_| {
            pause(Duration::from_millis(20));
            self.lines().contains(text)
        });
        assert!(found, "no line with {text:?} in:\n{}", self.lines());
    }

    fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn ended(&mut self) -> std::process::ExitStatus {
        wait_for("the worker to end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn trigger_one(server: &Server) -> String {
    server.everytick(&["job", "trigger", "mail"]).ok().trim().to_owned()
}

fn run(server: &Server, id: &str) -> Value {
    server.everytick(&["run", "get", id, "-o", "json"]).json()
}

fn ended_as(server: &Server, id: &str, state: &str) -> Value {
    wait_for(&format!("a run to end as {state}"), || Some(run(server, id)).filter(|run| run["state"] == state))
}

/// A shell line that creates the file `begun` and waits for the file `go`.
const WAITS: &str = "touch begun; until [ -e go ]; do sleep 0.02; done; echo went";

fn with_queue(flags: &[&str]) -> Server {
    let server = Server::start();
    server.everytick(&[&["job", "create", "mail", "--queue", "emails", "--overlap", "allow"], flags].concat()).ok();
    server
}

/// Triggers `count` runs, one request each.
fn trigger(server: &Server, count: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (http, url) = (reqwest::Client::new(), format!("{}/api/v1/jobs/mail/trigger", server.url()));
        for n in 0..count {
            let answer = http.post(&url).json(&serde_json::json!({"payload": {"n": n}})).send().await.unwrap();
            assert_eq!(answer.status(), 201, "{n}: {}", answer.text().await.unwrap());
        }
    });
}

/// The last `sh` block of docs/how-to/workers.md.
#[test]
fn the_requests_in_the_workers_page_work() {
    let page = include_str!("../../docs/how-to/workers.md");
    let block = page.split("```sh\n").last().and_then(|rest| rest.split("```").next()).unwrap();
    let server = Server::builder().flags(&["--enable-shell"]).start();
    let printed = server.script(block);
    assert!(printed.contains("\"ada@example.org\"\n"), "{printed}");
    let answers = ["\"cancelled\":false", "\"logged\":true", "\"state\":\"succeeded\""];
    assert!(answers.iter().all(|answer| printed.contains(answer)), "{printed}");
    let run = server.everytick(&["run", "list", "--job", "greeting", "-o", "json"]).json();
    let log = server.everytick(&["run", "log", run["items"][0]["id"].as_str().unwrap()]).ok();
    assert_eq!(log, "connecting");
}

fn queue(server: &Server) -> Value {
    server.everytick(&["queue", "get", "emails", "-o", "json"]).json()
}

/// Waits until no run of the queue waits or is claimed.
fn wait_until_queue_is_empty(server: &Server) {
    for _ in 0..LONG_WAIT_MAX.as_millis() / 100 {
        let queue = queue(server);
        if queue["depth"] == 0 && queue["claimed"] == 0 && queue["later"] == 0 {
            return;
        }
        pause(Duration::from_millis(100));
    }
    panic!("the queue is not empty: {}", queue(server));
}

/// Checks that the job has `count` runs and all succeeded at the first attempt.
fn all_succeeded(server: &Server, count: usize) {
    let list = server.everytick(&["job", "runs", "mail", "--limit", "2000", "-o", "json"]).json();
    let items = list["items"].as_array().unwrap();
    let done = items.iter().filter(|run| run["state"] == "succeeded" && run["attempt"] == 1).count();
    assert_eq!((items.len(), done), (count, count));
    let ids: BTreeSet<&str> = items.iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), count);
}

#[test]
fn the_python_example_completes_a_thousand_runs() {
    let server = with_queue(&[]);
    trigger(&server, RUNS);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py");
    let worker = || {
        let mut python = std::process::Command::new("python3");
        Started::new(python.args([example, server.url(), "emails"]))
    };
    let _workers = [worker(), worker()];
    wait_until_queue_is_empty(&server);
    all_succeeded(&server, RUNS);
    let first = server.everytick(&["run", "list", "--limit", "1", "-o", "json"]).json();
    let log = server.everytick(&["run", "log", first["items"][0]["id"].as_str().unwrap()]).ok();
    let (logged, output) = log.split_once('\n').unwrap();
    assert!(logged.starts_with("got {'n': ") && output.starts_with("done with {'n': "), "{log}");
}

#[test]
fn the_crate_completes_a_thousand_runs_and_drains_when_it_stops() {
    let server = with_queue(&[]);
    trigger(&server, RUNS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stop, seen) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let handler = {
        let seen = seen.clone();
        move |context: Context| {
            let seen = seen.clone();
            async move {
                let payload: Value = context.payload()?;
                seen.lock().unwrap().push(context.run().id.clone());
                Ok::<_, Failure>(format!("n is {}", payload["n"]))
            }
        }
    };
    let worker = Worker::new(server.url(), "emails").unwrap().named("crate").concurrency(8);
    let working = runtime.spawn({
        let stop = stop.clone();
        async move { worker.run(handler, stop).await }
    });
    wait_until_queue_is_empty(&server);
    stop.cancel();
    runtime.block_on(async { tokio::time::timeout(LONG_WAIT_MAX, working).await }).unwrap().unwrap().unwrap();
    all_succeeded(&server, RUNS);
    assert_eq!(seen.lock().unwrap().len(), RUNS, "each run was handled once");
}

/// A failure is retried, a permanent failure is not, and a panic fails only its own run.
#[test]
fn the_crate_reports_the_result_of_a_handler() {
    let server = with_queue(&["--base-delay", "1ms", "--max-delay", "1ms", "--max-retries", "1"]);
    let ids: Vec<String> = ["fine", "again", "hopeless", "panic"]
        .iter()
        .map(|what| {
            let payload = format!("\"{what}\"");
            server.everytick(&["job", "trigger", "mail", "--payload", &payload]).ok().trim().to_owned()
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let handler = {
        let calls = calls.clone();
        move |context: Context| {
            calls.fetch_add(1, Ordering::SeqCst);
            async move {
                context.log("begun\n");
                match context.payload::<String>()?.as_str() {
                    "fine" => Ok(String::new()),
                    "again" if context.run().attempt == 1 => Err(Failure::new("not yet")),
                    "again" => Ok("at last".to_owned()),
                    "hopeless" => Err(Failure::for_good("never")),
                    _ => panic!("it broke"),
                }
            }
        }
    };
    let stop = CancellationToken::new();
    let worker = Worker::new(server.url(), "emails").unwrap().concurrency(4);
    let working = runtime.spawn({
        let stop = stop.clone();
        async move { worker.run(handler, stop).await }
    });
    let state = |id: &str| server.everytick(&["run", "get", id, "-o", "json"]).json();
    for (id, expected) in ids.iter().zip(["succeeded", "succeeded", "failed", "failed"]) {
        wait_for("the end of a run", || (state(id)["state"] == expected).then_some(()));
    }
    stop.cancel();
    runtime.block_on(async { tokio::time::timeout(LONG_WAIT_MAX, working).await }).unwrap().unwrap().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 6, "two of the four runs have two attempts");
    assert_eq!(state(&ids[0])["output"], "begun\n", "without an output, the log is stored");
    assert_eq!((&state(&ids[1])["attempt"], &state(&ids[1])["output"]), (&2.into(), &"begun\nat last".into()));
    assert_eq!((&state(&ids[2])["attempt"], &state(&ids[2])["error"]), (&1.into(), &"never".into()));
    assert!(state(&ids[3])["error"].as_str().unwrap().contains("panic"), "{}", state(&ids[3]));
}

#[test]
fn everytick_worker_runs_a_command_for_each_run() {
    let server = with_queue(&["--max-retries", "0"]);
    let script = r#"read payload; echo "$EVERYTICK_JOB $EVERYTICK_QUEUE $EVERYTICK_ATTEMPT $EVERYTICK_CAUSE $EVERYTICK_WORKER $payload"; \
        test -n "$EVERYTICK_RUN" -a -n "$EVERYTICK_FENCE" -a -n "$EVERYTICK_SCHEDULED_AT"; [ "$payload" != '"bad"' ]"#;
    let mut worker = Started::worker(&server, &["--concurrency", "2", "--name", "w1", "--", "sh", "-c", script]);
    let trigger =
        |payload: &str| server.everytick(&["job", "trigger", "mail", "--payload", payload]).ok().trim().to_owned();
    let (good, bad) = (trigger("\"good\""), trigger("\"bad\""));
    let state = |id: &str| server.everytick(&["run", "get", id, "-o", "json"]).json();
    let good = wait_for("the good run", || Some(state(&good)).filter(|run| run["state"] == "succeeded"));
    assert_eq!((&good["output"], &good["worker"]), (&"mail emails 1 request w1 \"good\"\n".into(), &"w1".into()));
    let bad = wait_for("the bad run", || Some(state(&bad)).filter(|run| run["state"] == "failed"));
    assert!(bad["error"].as_str().unwrap().contains("exit status: 1"), "{bad}");
    // After SIGTERM the worker ends with success.
    worker.signal("-TERM");
    assert!(worker.ended().success());
}

#[test]
fn a_cancelled_run_terminates_its_command() {
    let server = with_queue(&[]);
    let file = server.dir().join("ended");
    let script = format!("trap 'echo ended > {}; exit 1' TERM; echo begun; sleep 600 & wait", file.display());
    let worker = Started::worker(&server, &["--", "sh", "-c", &script]);
    let run = trigger_one(&server);
    wait_for("the command to start", || server.everytick(&["run", "log", &run]).stdout.contains("begun").then_some(()));
    server.everytick(&["run", "cancel", &run]).ok();
    wait_for("the command to end", || file.exists().then_some(()));
    worker.wait_for_line(&format!("run {run} of mail: cancelled after "));
}

#[test]
fn a_worker_writes_a_line_when_it_starts_waits_claims_finishes_and_stops() {
    let server = with_queue(&["--base-delay", "1ms", "--max-delay", "1ms", "--max-retries", "1"]);
    let script = "[ $EVERYTICK_ATTEMPT = 2 ] || { echo no >&2; exit 3; }";
    let mut worker = Started::worker(&server, &["--", "sh", "-c", script]);
    let name = format!("{}-{}", server.script("uname -n").trim(), worker.child.id());
    worker.wait_for_line(&format!("worker {name} started: queue emails at {}, 1 run at a time\n", server.url()));
    let id = trigger_one(&server);
    let run = ended_as(&server, &id, "succeeded");
    assert_eq!(run["worker"], name);
    worker.wait_for_line(&format!("run {id} of mail: succeeded after "));
    worker.signal("-TERM");
    assert!(worker.ended().success());
    worker.wait_for_line("stopped\n");
    let lines = worker.lines();
    let expected = [
        format!("run {id} of mail: claimed, attempt 1"),
        format!("run {id} of mail: failed after "),
        format!("run {id} of mail: claimed, attempt 2"),
        format!("run {id} of mail: succeeded after "),
        "stopping".to_owned(),
        "stopped".to_owned(),
    ];
    let rest = lines.lines().skip(1).zip(&expected);
    assert!(
        rest.clone().count() == expected.len() && rest.clone().all(|(line, begin)| line.starts_with(begin)),
        "{lines}"
    );
    assert!(lines.contains(": exit status: 3; retry at "), "{lines}");

    let shown = server.everytick(&["run", "get", &id]).ok();
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["Worker", &name])), "{shown}");
    let attempts = server.everytick(&["run", "attempts", &id]).ok();
    let header: Vec<&str> = attempts.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "ERROR"], "no node made an attempt");
    assert_eq!(attempts.matches(&name).count(), 2, "{attempts}");
}

#[test]
fn a_quiet_worker_writes_nothing() {
    let server = with_queue(&[]);
    let mut worker = Started::worker(&server, &["-q", "--", "true"]);
    ended_as(&server, &trigger_one(&server), "succeeded");
    worker.signal("-TERM");
    assert!(worker.ended().success());
    assert_eq!(worker.lines(), "");
}

#[test]
fn a_worker_warns_of_a_queue_that_no_job_uses() {
    let server = Server::start();
    let worker = Started::worker(&server, &["--", "true"]);
    worker.wait_for_line("no job uses queue emails; waiting until one does\n");
    server.everytick(&["job", "create", "mail", "--queue", "emails"]).ok();
    ended_as(&server, &trigger_one(&server), "succeeded");
}

#[test]
fn a_command_that_does_not_exist_is_refused_before_anything_is_claimed() {
    let server = with_queue(&[]);
    let id = trigger_one(&server);
    for (command, remedy) in [("./send-mail", "does not exist"), ("send-mail", "is not in PATH")] {
        let refused = server.everytick(&["worker", "--queue", "emails", "--", command]).failed(2);
        assert!(refused.contains(&format!("error: CMD: {command:?} {remedy}; write ")), "{refused}");
    }
    std::fs::write(server.dir().join("send-mail"), "#!/bin/sh\n").unwrap();
    let refused = server.everytick(&["worker", "--queue", "emails", "--", "./send-mail"]).failed(2);
    assert!(refused.contains("is not executable; run `chmod +x ./send-mail`"), "{refused}");
    let run = run(&server, &id);
    assert_eq!((&run["state"], &run["attempt"]), (&"waiting".into(), &0.into()));
}

#[test]
fn a_worker_that_the_server_refuses_ends_with_the_reason() {
    let sink = crate::support::Sink::start();
    let refused = everytick(&["worker", "--queue", "q", "--server", &sink.url(), "--", "true"]).failed(1);
    assert!(refused.contains("is not everytick"), "{refused}");
    let refused = everytick(&["worker", "--queue", "q", "--server", "here", "--", "true"]).failed(2);
    assert!(refused.contains("--server: \"here\""), "{refused}");
    everytick(&["worker", "--queue", "q", "--name", "", "--", "true"]).failed(2);
}

/// An idle worker stops at once: it ends its waiting claim request, which then gets no later run.
#[test]
fn after_term_a_worker_claims_no_more_runs_and_finishes_its_own() {
    let server = with_queue(&[]);
    let (first, file) = (trigger_one(&server), |name: &str| server.dir().join(name));
    let mut worker = Started::worker(&server, &["--concurrency", "2", "--", "sh", "-c", WAITS]);
    wait_for("the command to begin", || file("begun").exists().then_some(()));
    // It has a free slot, so a claim request waits at the server.
    worker.signal("-TERM");
    worker.wait_for_line("stopping: waiting for 1 run in progress; a second signal ends them\n");
    let second = trigger_one(&server);
    // Any worker may claim the second run now. If the stopped worker does, it returns it.
    let mut other = Started::worker(&server, &["--name", "other", "--", "true"]);
    let run = ended_as(&server, &second, "succeeded");
    assert_eq!((&run["worker"], &run["attempt"]), (&"other".into(), &1.into()));
    other.signal("-TERM");
    assert!(other.ended().success());
    assert!(worker.child.try_wait().unwrap().is_none(), "it waits for the first run");
    std::fs::write(file("go"), "").unwrap();
    assert!(worker.ended().success());
    let run = ended_as(&server, &first, "succeeded");
    assert_eq!((&run["output"], &run["attempt"]), (&"went\n".into(), &1.into()));
    assert!(!worker.lines().contains(&format!("{second} of mail: claimed")), "{}", worker.lines());
}

#[test]
fn a_second_term_ends_the_commands_and_reports_them_as_failed() {
    let server = with_queue(&["--max-retries", "0"]);
    let id = trigger_one(&server);
    let mut worker = Started::worker(&server, &["--", "sh", "-c", WAITS]);
    wait_for("the command to begin", || server.dir().join("begun").exists().then_some(()));
    worker.signal("-TERM");
    worker.wait_for_line("stopping: waiting for 1 run");
    worker.signal("-INT");
    assert!(worker.ended().success());
    let run = ended_as(&server, &id, "failed");
    assert_eq!(run["error"], "the worker was stopped (signal: 15 (SIGTERM))");
    worker.wait_for_line("stopping now: ending 1 run in progress\n");
}

/// The claims and results of two workers, `everytick worker` and the Python example, survive `kill -9` of the server while the
/// work is in progress. Both report to the new server and continue with the next runs.
#[test]
fn workers_survive_a_restart_of_the_server() {
    let server = Server::start();
    let url = server.url().to_owned();
    for queue in ["emails", "reports"] {
        server.everytick(&["job", "create", queue, "--queue", queue, "--overlap", "allow"]).ok();
    }
    let trigger = |server: &Server, job: &str| server.everytick(&["job", "trigger", job]).ok().trim().to_owned();
    let first = ["emails", "reports"].map(|job| trigger(&server, job));
    let example = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py")).unwrap();
    let waits = "    import subprocess\n    subprocess.run(['sh', '-c', 'touch begun.py; until [ -e go ]; do sleep 0.02; done'])\n    log(";
    let example = example.replacen("    log(", waits, 1);
    std::fs::write(server.dir().join("worker.py"), example).unwrap();
    let mut python = std::process::Command::new("python3");
    let python = Started::new(python.args(["worker.py", server.url(), "reports"]).current_dir(server.dir()));
    let worker = Started::worker(&server, &["--", "sh", "-c", WAITS]);
    for file in ["begun", "begun.py"] {
        wait_for("the work to begin", || server.dir().join(file).exists().then_some(()));
    }
    let dir = server.kill();
    std::fs::write(dir.path().join("go"), "").unwrap();
    worker.wait_for_line(&format!("waiting for the server at {url}: Connection refused\n"));
    python.wait_for_line(&format!("waiting for {url}: "));
    let server = Server::builder().dir(dir).url(&url).start();
    for id in &first {
        let run = ended_as(&server, id, "succeeded");
        assert_eq!(run["attempt"], 1, "{run}");
    }
    worker.wait_for_line(&format!("the server at {url} answers again after "));
    for job in ["emails", "reports"] {
        let next = trigger(&server, job);
        ended_as(&server, &next, "succeeded");
    }
    let mut python = python;
    python.signal("-TERM");
    assert!(python.ended().success(), "{}", python.lines());
}

#[test]
fn the_python_example_sends_its_token_and_explains_a_missing_one() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    server.everytick(&["job", "create", "mail", "--queue", "emails"]).ok();
    let token = server.everytick(&["token", "create", "w", "--role", "worker", "--queue", "emails"]).ok();
    let id = trigger_one(&server);
    let worker = |token: &str, queue: &str| {
        let mut python = std::process::Command::new("python3");
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py");
        Started::new(python.args([example, server.url(), queue, "1"]).env("EVERYTICK_TOKEN", token))
    };
    for (token, queue, part) in [
        ("", "emails", "the variable EVERYTICK_TOKEN is not set; create one with `everytick token create"),
        ("etk_wrong", "emails", "the token in EVERYTICK_TOKEN is not valid"),
        (
            token.trim(),
            "other",
            "the worker may not claim from queue other; check the name, and the queues of its token",
        ),
    ] {
        let mut refused = worker(token, queue);
        assert_eq!(refused.ended().code(), Some(1), "{}", refused.lines());
        refused.wait_for_line(part);
        assert!(!refused.lines().contains("Traceback"), "{}", refused.lines());
    }
    let mut command = server.command(&["worker", "--queue", "other", "--", "true"]);
    let refused = crate::support::Done::from(command.env("EVERYTICK_TOKEN", token.trim()).output().unwrap()).failed(1);
    assert!(
        refused.contains("the worker may not claim from queue \"other\"; check the name, and the queues"),
        "{refused}"
    );
    let mut python = worker(&token, "emails");
    assert!(python.ended().success(), "{}", python.lines());
    ended_as(&server, &id, "succeeded");
}

#[test]
fn queues_are_listed_and_limited() {
    let server = with_queue(&[]);
    server.everytick(&["job", "trigger", "mail"]).ok();
    let list = server.everytick(&["queue", "list"]).ok();
    let words: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["emails", "1", "0", "0"], "{list}");
    let set = |flags: &[&str]| server.everytick(&[&["queue", "set", "emails", "-o", "json"], flags].concat());
    assert_eq!(set(&["--concurrency", "2"]).json()["concurrency"], 2);
    let both = set(&["--rate", "10/1m"]).json();
    assert_eq!((&both["concurrency"], &both["rate"]), (&2.into(), &"10/1m".into()));
    assert_eq!(set(&["--no-concurrency"]).json()["rate"], "10/1m");
    set(&[]).failed(2);
    set(&["--rate", "fast"]).failed(2);
    server.everytick(&["queue", "get", "none"]).failed(3);
}
