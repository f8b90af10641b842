//! Flows through the built binary: the example of docs/flows.md, reruns and cancels.

use serde_json::Value;

use crate::support::{Server, wait_for};

/// The `sh` block of docs/flows.md.
fn example() -> String {
    let page = include_str!("../../docs/flows.md");
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap().to_owned()
}

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell"]).start()
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
fn the_example_of_the_page_about_flows_does_what_it_says() {
    let server = with_shell();
    let said = server.script(&example());
    let drawn = said.rsplit("JOB ").next().unwrap();
    let lines: Vec<&str> = drawn.lines().skip(1).collect();
    let begins = ["extract", "├─ left", "└─ right", "   └─ load", "      ├─ clean", "      └─ mend"];
    assert_eq!(lines.len(), begins.len(), "{drawn}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line:?} should begin with {begin:?}\n{drawn}");
    }
    assert!(lines[3].contains("succeeded") && lines[3].ends_with("after left, right"), "{drawn}");
    assert!(lines[5].contains("skipped (parent)"), "{drawn}");
    assert!(lines[5].ends_with("after load:failed; parent load is succeeded, not failed"), "{drawn}");
    let left = server.everytick(&["run", "list", "--job", "left", "-o", "json"]).json();
    let left = left["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.everytick(&["run", "log", &left]).ok(), "{\"half\":1,\"rows\":12}\n");
}

#[test]
fn what_failed_is_run_again_and_what_goes_on_is_cancelled() {
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

    // One that goes on is stopped, and what follows is not begun.
    create("slow", &["--shell", "echo begun; exec sleep 60"]);
    create("never", &["--after", "slow:finished", "--shell", "true"]);
    let flow = trigger(&server, "slow");
    wait_for("the work to begin", || {
        let run = server.everytick(&["run", "get", &flow, "-o", "json"]).json();
        (run["state"] == "claimed").then_some(())
    });
    let said = server.everytick(&["flow", "cancel", &flow]).ok();
    assert_eq!(said, format!("{flow} cancelled, with 1 of its runs\n"));
    wait_for("what follows to be skipped", || {
        let shown = server.everytick(&["flow", "get", &flow, "-o", "json"]).json();
        (states(&shown) == "slow cancelled, never skipped").then_some(())
    });
    let refused = server.everytick(&["job", "delete", "a"]).failed(4);
    assert!(refused.contains("the job is named by the job b"), "{refused}");
    let cycle = server.everytick(&["job", "update", "a", "--after", "c"]).failed(1);
    assert!(cycle.contains("makes a cycle: a -> b -> c -> a"), "{cycle}");
    server.everytick(&["job", "update", "b", "--no-after"]).ok();
    server.everytick(&["job", "delete", "a"]).ok();
}
