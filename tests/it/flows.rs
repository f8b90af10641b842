//! Flows through the built binary: the example of docs/how-to/flows.md, reruns and cancels.

use serde_json::Value;

use crate::support::{Server, wait_for};

/// The `sh` block of docs/how-to/flows.md.
fn example() -> String {
    let page = include_str!("../../docs/how-to/flows.md");
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap().to_owned()
}

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell", "--auth", "open"]).start()
}

fn states(flow: &Value) -> String {
    let shown = |node: &Value| format!("{} {}", node["job"].as_str().unwrap(), node["state"].as_str().unwrap_or("-"));
    flow["nodes"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn ended(server: &Server, flow: &str) -> Value {
    wait_for("the flow to end", || {
        let shown = server.everytick(&["flow", "get", flow, "-o", "json"]).json();
        (shown["state"] != "running").then_some(shown)
    })
}

fn trigger(server: &Server, job: &str) -> String {
    let run = server.everytick(&["job", "trigger", job, "-o", "json"]).json();
    assert_eq!(run["flow"], run["id"]);
    run["id"].as_str().unwrap().to_owned()
}

#[test]
fn the_example_in_the_flows_page_works() {
    let server = with_shell();
    let printed = server.script(&example());
    let drawn = printed.rsplit("JOB ").next().unwrap();
    let lines: Vec<&str> = drawn.lines().skip(1).collect();
    let begins = ["extract", "├─ left", "└─ right", "   └─ load", "      ├─ clean", "      └─ mend"];
    assert_eq!(lines.len(), begins.len(), "{drawn}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line:?} should start with {begin:?}\n{drawn}");
    }
    assert!(lines[3].contains("succeeded") && lines[3].ends_with("after left, right"), "{drawn}");
    assert!(lines[5].contains("skipped (parent)"), "{drawn}");
    assert!(lines[5].ends_with("after load:failed; parent load is succeeded, not failed"), "{drawn}");
    let left = server.everytick(&["run", "list", "--job", "left", "-o", "json"]).json();
    let left = left["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.everytick(&["run", "log", &left]).ok(), "{\"half\":1,\"rows\":12}\n");
}

#[test]
fn a_failed_flow_is_rerun_and_a_running_flow_is_cancelled() {
    let server = with_shell();
    let dir = server.dir().display().to_string();
    let create = |name: &str, more: &[&str]| {
        server.everytick(&[&["job", "create", name, "--workdir", &dir], more].concat()).ok();
    };
    create("a", &["--shell", "true"]);
    create("b", &["--after", "a", "--shell", "test -e mended"]);
    create("c", &["--after", "b", "--shell", "true"]);
    let flow = trigger(&server, "a");
    let failed = ended(&server, &flow);
    assert_eq!((states(&failed).as_str(), &failed["state"]), ("a succeeded, b failed, c skipped", &"failed".into()));
    let refused = server.everytick(&["flow", "rerun", &flow, "--from", "z"]).failed(1);
    assert!(refused.contains("the flow has no job \"z\""), "{refused}");
    std::fs::write(server.dir().join("mended"), "").unwrap();
    let again = server.everytick(&["flow", "rerun", &flow, "-o", "json"]).json();
    assert_eq!(again["rerun_of"], flow.as_str());
    let again = ended(&server, again["id"].as_str().unwrap());
    assert_eq!((states(&again).as_str(), &again["state"]), ("b succeeded, c succeeded", &"succeeded".into()));

    // Cancelling a running flow cancels its open run, and the job that follows does not start.
    create("slow", &["--shell", "echo begun; exec sleep 60"]);
    create("never", &["--after", "slow:finished", "--shell", "true"]);
    let flow = trigger(&server, "slow");
    wait_for("the run to start", || {
        let run = server.everytick(&["run", "get", &flow, "-o", "json"]).json();
        (run["state"] == "claimed").then_some(())
    });
    let printed = server.everytick(&["flow", "cancel", &flow]).ok();
    assert_eq!(printed, format!("{flow} cancelled; runs cancelled with it: 1\n"));
    wait_for("the child to be skipped", || {
        let shown = server.everytick(&["flow", "get", &flow, "-o", "json"]).json();
        (states(&shown) == "slow cancelled, never skipped").then_some(())
    });
    let refused = server.everytick(&["job", "delete", "a"]).failed(4);
    assert!(refused.contains("depends_on of the job b contains it; remove it there"), "{refused}");
    let cycle = server.everytick(&["job", "update", "a", "--after", "c"]).failed(1);
    assert!(cycle.contains("makes a cycle: a -> b -> c -> a"), "{cycle}");
    server.everytick(&["job", "update", "b", "--no-after"]).ok();
    server.everytick(&["job", "delete", "a"]).ok();
}

/// The value of a counter in `/metrics`.
fn counted(server: &Server, series: &str) -> u64 {
    let text = server.script(&format!("curl -fsS {}/metrics", server.url()));
    let line = text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_missing_template_value_fails_the_flow_and_is_logged_and_counted() {
    let server = with_shell();
    server.everytick(&["job", "create", "a", "--shell", "echo '{}'"]).ok();
    let payload = r#"{"rows": "{{ parents.a.output.rows }}"}"#;
    server.everytick(&["job", "create", "b", "--after", "a", "--shell", "cat", "--payload", payload]).ok();
    let skips = r#"everytick_ticks_skipped_total{reason="error"}"#;
    assert_eq!(counted(&server, skips), 0);
    let flow = ended(&server, &trigger(&server, "a"));
    assert_eq!((states(&flow).as_str(), &flow["state"]), ("a succeeded, b skipped", &"failed".into()));
    assert_eq!(counted(&server, skips), 1);
    server.wait_for_log("could not be started, and the flow fails");
    let refused = server.everytick(&["job", "trigger", "b"]).failed(1);
    assert!(refused.contains("{{ parents.a.output.rows }}, but this run would belong to no flow"), "{refused}");
}

/// Peak resident memory of the server, in MiB.
fn peak_mib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

/// The API refuses such a payload now, but a job from an earlier release may have one.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_with_ten_thousand_placeholders_uses_little_memory() {
    use sqlx::Connection as _;
    let server = with_shell();
    // 60 KB of output for each of 10,000 placeholders would be 600 MB.
    server.everytick(&["job", "create", "a", "--shell", "head -c 60000 /dev/zero | tr '\\0' x"]).ok();
    server.everytick(&["job", "create", "b", "--after", "a", "--shell", "cat", "--payload", "1"]).ok();
    let payload = serde_json::to_string(&vec!["{{ parents.a.output }}"; 10_000]).unwrap();
    std::fs::write(server.dir().join("payload.json"), &payload).unwrap();
    let refused = server.everytick(&["job", "update", "b", "--payload", "@payload.json"]);
    assert!(refused.failed(1).contains("has 10000 placeholders"));
    let (dir, ..) = server.stop();
    let file = format!("sqlite:{}/data/everytick.db", dir.path().display());
    let mut file = sqlx::SqliteConnection::connect(&file).await.unwrap();
    let set = sqlx::query("update jobs set spec = json_set(spec, '$.payload', ?1) where name = 'b'");
    assert_eq!(set.bind(&payload).execute(&mut file).await.unwrap().rows_affected(), 1);
    file.close().await.unwrap();
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).dir(dir).start();
    let before = peak_mib(&server);
    let flow = ended(&server, &trigger(&server, "a"));
    assert_eq!(flow["state"], "failed");
    let why = flow["nodes"][1]["error"].as_str().unwrap();
    assert!(why.contains("has 10000 placeholders"), "{why}");
    let grew = peak_mib(&server) - before;
    assert!(grew < 20, "{grew} MiB more");
}
