//! Queue workers against a real server: `everytick worker`, the Python example and the worker crate.

use std::{
    collections::BTreeSet,
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

use crate::support::{Server, pause, wait_for};

/// The limit of waiting runs of one job.
const RUNS: usize = 1_000;
/// Enough for 1,000 runs with three requests each, on a busy machine.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// A child process that is killed when dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
            let asked = http.post(&url).json(&serde_json::json!({"payload": {"n": n}})).send().await.unwrap();
            assert_eq!(asked.status(), 201, "{n}: {}", asked.text().await.unwrap());
        }
    });
}

/// The `sh` block of docs/how-to/workers.md.
#[test]
fn the_requests_in_the_workers_page_work() {
    let page = include_str!("../../docs/how-to/workers.md");
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let server = Server::start();
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
fn worked_off(server: &Server) {
    for _ in 0..LONG_PATIENCE.as_millis() / 100 {
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
        python.args([example, server.url(), "emails"]).stdin(Stdio::null());
        Started(python.spawn().unwrap())
    };
    let _workers = [worker(), worker()];
    worked_off(&server);
    all_succeeded(&server, RUNS);
    let first = server.everytick(&["run", "list", "--limit", "1", "-o", "json"]).json();
    let log = server.everytick(&["run", "log", first["items"][0]["id"].as_str().unwrap()]).ok();
    assert!(log.starts_with("done with {'n': "), "{log}");
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
    worked_off(&server);
    stop.cancel();
    runtime.block_on(async { tokio::time::timeout(LONG_PATIENCE, working).await }).unwrap().unwrap();
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
    runtime.block_on(async { tokio::time::timeout(LONG_PATIENCE, working).await }).unwrap().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 6, "two of the four runs have two attempts");
    assert_eq!(state(&ids[0])["output"], "begun\n", "without an output, the log is stored");
    assert_eq!((&state(&ids[1])["attempt"], &state(&ids[1])["output"]), (&2.into(), &"at last".into()));
    assert_eq!((&state(&ids[2])["attempt"], &state(&ids[2])["error"]), (&1.into(), &"never".into()));
    assert!(state(&ids[3])["error"].as_str().unwrap().contains("panic"), "{}", state(&ids[3]));
}

#[test]
fn everytick_worker_runs_a_command_for_each_run() {
    let server = with_queue(&["--max-retries", "0"]);
    let script = r#"read payload; echo "$EVERYTICK_JOB $EVERYTICK_QUEUE $EVERYTICK_ATTEMPT $EVERYTICK_CAUSE $EVERYTICK_WORKER $payload"; \
        test -n "$EVERYTICK_RUN" -a -n "$EVERYTICK_FENCE" -a -n "$EVERYTICK_SCHEDULED_AT"; [ "$payload" != '"bad"' ]"#;
    let args = ["worker", "--queue", "emails", "--concurrency", "2", "--name", "w1", "--", "sh", "-c", script];
    let mut worker = Started(server.command(&args).spawn().unwrap());
    let trigger =
        |payload: &str| server.everytick(&["job", "trigger", "mail", "--payload", payload]).ok().trim().to_owned();
    let (good, bad) = (trigger("\"good\""), trigger("\"bad\""));
    let state = |id: &str| server.everytick(&["run", "get", id, "-o", "json"]).json();
    let good = wait_for("the good run", || Some(state(&good)).filter(|run| run["state"] == "succeeded"));
    assert_eq!((&good["output"], &good["worker"]), (&"mail emails 1 request w1 \"good\"\n".into(), &"w1".into()));
    let bad = wait_for("the bad run", || Some(state(&bad)).filter(|run| run["state"] == "failed"));
    assert!(bad["error"].as_str().unwrap().contains("exit status: 1"), "{bad}");
    // After SIGTERM the worker ends with success.
    let pid = worker.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = wait_for("the worker to end", || worker.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn a_cancelled_run_terminates_its_command() {
    let server = with_queue(&[]);
    let file = server.dir().join("ended");
    let script = format!("trap 'echo ended > {}; exit 1' TERM; echo begun; sleep 600 & wait", file.display());
    let _worker = Started(server.command(&["worker", "--queue", "emails", "--", "sh", "-c", &script]).spawn().unwrap());
    let run = server.everytick(&["job", "trigger", "mail"]).ok().trim().to_owned();
    wait_for("the command to start", || server.everytick(&["run", "log", &run]).stdout.contains("begun").then_some(()));
    server.everytick(&["run", "cancel", &run]).ok();
    wait_for("the command to end", || file.exists().then_some(()));
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
