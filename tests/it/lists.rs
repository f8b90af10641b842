//! Lists, short ids, the audit trail and the views of one object.

use serde_json::{Value, json};

use crate::{
    output::{on_terminal, plain},
    support::{Server, wait_for},
};

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell", "--auth", "open"]).start()
}

/// The items of a list.
fn items(server: &Server, args: &[&str]) -> Vec<Value> {
    let list = server.everytick(&[args, &["-o", "json"]].concat()).json();
    list["items"].as_array().unwrap().clone()
}

fn names(items: &[Value], field: &str) -> Vec<String> {
    let mut names: Vec<String> = items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_table_of_runs_fits_80_columns_and_shows_ids_that_commands_accept() {
    let server = with_shell();
    let long = format!("{}-with-a-long-name-that-does-not-fit", "report".repeat(8));
    let script = "echo a very long explanation of what went wrong in this command >&2; exit 3";
    server.everytick(&["job", "create", &long, "--shell", script]).ok();
    server.everytick(&["job", "create", "short", "--every", "1s", "--", "true"]).ok();
    let failed = server.everytick(&["job", "trigger", &long, "--wait"]).stdout.trim().to_owned();
    wait_for("runs of the other job", || (items(&server, &["job", "runs", "short"]).len() >= 3).then_some(()));
    server.everytick(&["job", "pause", "short"]).ok();
    let table = server.everytick(&["run", "list"]).ok();
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
    }
    let shown: Vec<&str> = table.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    let mut different = shown.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), shown.len(), "{table}");
    assert!(shown.iter().all(|id| id.len() >= 8 && id.len() < 36), "{table}");
    for id in shown {
        let run = server.everytick(&["run", "get", id, "-o", "json"]).json();
        assert!(run["id"].as_str().unwrap().starts_with(id), "{id}: {run}");
    }
    let (short, simple) = (&failed[..18], &failed.replace('-', "")[..20]);
    for args in [&["run", "get", short][..], &["run", "attempts", simple], &["run", "log", short]] {
        server.everytick(args).ok();
    }
    server.everytick(&["run", "cancel", short]).failed(4);
    let again = server.everytick(&["run", "rerun", short]).ok();
    assert_ne!(again.trim(), failed);
    server.everytick(&["run", "get", "00000000"]).failed(3);
    assert!(server.everytick(&["run", "get", "01a1"]).failed(2).contains("at least 8 digits"));
}

#[test]
fn tables_fit_80_columns_in_a_pipe_and_on_a_terminal() {
    let server = with_shell();
    let script = "echo this is a long command whose text does not fit into the column of a table";
    let long = ["--cron", "0 2 * * 1-5", "--tz", "America/Argentina/Buenos_Aires", "--label", "team=billing"];
    server.everytick(&[&["job", "create", "extract-orders-of-europe"][..], &long, &["--shell", script]].concat()).ok();
    let after = ["--after", "extract-orders-of-europe", "--queue", "deliveries"];
    server.everytick(&[&["job", "create", "load-orders"][..], &after].concat()).ok();
    server.everytick(&["queue", "set", "deliveries", "--concurrency", "12", "--rate", "100/1m"]).ok();
    server.everytick(&["job", "trigger", "extract-orders-of-europe", "--wait"]).ok();
    wait_for("the child", || (!items(&server, &["job", "runs", "load-orders"]).is_empty()).then_some(()));
    for (command, shown) in [
        ("run list", "load-orders"),
        ("job list", "extract-orders-of-europe"),
        ("flow list", "running"),
        ("cluster", "shell"),
        ("queue list", "deliveries"),
        ("audit", "trigger"),
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let pipe = server.everytick(&args).ok();
        let screen = plain(&on_terminal(&server, 80, &format!("everytick {command}")));
        for text in [&pipe, &screen] {
            assert!(text.contains(shown), "{command}: {text}");
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 80, "{command}: {widest} columns:\n{text}");
        }
    }
}

#[test]
fn an_ambiguous_beginning_of_an_id_is_an_error_that_lists_the_candidates() {
    let server = with_shell();
    for name in ["a", "b"] {
        server.everytick(&["job", "create", name, "--every", "1s", "--queue", "q"]).ok();
    }
    // Both jobs tick at the same instants, so their runs have the same first 13 characters.
    let (one, other) = wait_for("two runs of one instant", || {
        let (a, b) = (items(&server, &["job", "runs", "a"]), items(&server, &["job", "runs", "b"]));
        let id = |run: &Value| run["id"].as_str().unwrap().to_owned();
        let same = |run: &Value| b.iter().find(|other| other["scheduled_at"] == run["scheduled_at"]).map(id);
        a.iter().find_map(|run| Some((id(run), same(run)?)))
    });
    let message = server.everytick(&["run", "get", &one[..13]]).failed(4);
    for part in ["several runs", &one, &other, "(a, ", "(b, "] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(server.everytick(&["run", "get", &one, "-o", "json"]).json()["job"], "a");
    // A job is found by the beginning of its id, unless a job has that name.
    let job = server.everytick(&["job", "get", "a", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.everytick(&["job", "get", &job[..20], "-o", "json"]).json()["name"], "a");
    let named = &job[..8];
    server.everytick(&["job", "create", named, "--queue", "q"]).ok();
    assert_eq!(server.everytick(&["job", "get", named, "-o", "json"]).json()["name"], *named);
}

#[test]
fn runs_are_listed_by_flow_label_and_cause_and_flows_have_a_list() {
    let server = with_shell();
    let label = ["--label", "team=x"];
    server.everytick(&[&["job", "create", "extract"][..], &label, &["--", "true"]].concat()).ok();
    server.everytick(&[&["job", "create", "load", "--after", "extract"][..], &label, &["--", "false"]].concat()).ok();
    server.everytick(&["job", "create", "other", "--", "true"]).ok();
    assert!(server.everytick(&["flow", "list"]).stderr.contains("no flows"));
    let root = server.everytick(&["job", "trigger", "extract", "--wait"]).ok().trim().to_owned();
    server.everytick(&["job", "trigger", "other", "--wait"]).ok();
    wait_for("the flow to end", || {
        let flows = items(&server, &["flow", "list", "--status", "failed"]);
        (flows.len() == 1 && flows[0]["id"] == *root).then_some(())
    });
    let flow = &items(&server, &["flow", "list"])[0];
    assert_eq!((&flow["root"], &flow["jobs"]), (&json!("extract"), &json!(2)));
    assert_eq!((&flow["ended"], &flow["failed"]), (&json!(2), &json!(1)));
    assert!(items(&server, &["flow", "list", "--status", "running,succeeded"]).is_empty());
    let table = server.everytick(&["flow", "list"]).ok();
    assert!(table.starts_with("FLOW ") && table.contains(&root[..18]) && table.contains("2/2"), "{table}");
    let short = &root[..18];
    assert!(server.everytick(&["flow", "get", short]).ok().contains("extract"));
    assert!(server.everytick(&["flow", "cancel", short]).failed(4).contains("only a running flow"));

    let of = |args: &[&str]| names(&items(&server, &[&["run", "list"], args].concat()), "job");
    assert_eq!(of(&["--flow", short]), ["extract", "load"]);
    assert_eq!(of(&["--label", "team=x"]), ["extract", "load"]);
    assert_eq!(of(&["--label", "team=y"]), [""; 0]);
    assert_eq!(of(&["--cause", "parent"]), ["load"]);
    assert_eq!(of(&["--cause", "request,tick", "--label", "team"]), ["extract"]);
    assert_eq!(of(&["--status", "failed", "--label", "team=x"]), ["load"]);
    assert!(server.everytick(&["run", "list", "--cause", "magic"]).failed(2).contains("backfill"));
}

#[test]
fn the_audit_trail_is_listed_by_actor_action_subject_and_time() {
    let server = Server::start();
    server.everytick(&["job", "create", "a", "--every", "1h", "--queue", "q"]).ok();
    server.everytick(&["job", "create", "b", "--every", "1h", "--queue", "q"]).ok();
    server.everytick(&["job", "pause", "a"]).ok();
    let run = server.everytick(&["job", "trigger", "b"]).ok().trim().to_owned();
    server.everytick(&["run", "cancel", &run]).ok();
    server.everytick(&["queue", "set", "q", "--concurrency", "3"]).ok();
    let of = |args: &[&str]| -> Vec<String> {
        let rows = items(&server, &[&["audit"], args].concat());
        rows.iter().map(|row| row["action"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of(&[]), ["limit", "cancel", "trigger", "pause", "create", "create"]);
    assert_eq!(of(&["--subject", "a"]), ["pause", "create"]);
    assert_eq!(of(&["--subject", &run[..18]]), ["cancel", "trigger"]);
    assert_eq!(of(&["--subject", "q"]), ["limit"]);
    assert_eq!(of(&["--action", "create"]), ["create", "create"]);
    assert_eq!(of(&["--actor", "local", "--action", "pause"]), ["pause"]);
    assert_eq!(of(&["--actor", "eve"]), [""; 0]);
    assert_eq!(of(&["--from", "1h ago", "--limit", "1"]), ["limit"]);
    assert_eq!(of(&["--to", "1h ago"]), [""; 0]);
    let table = server.everytick(&["audit", "--subject", "a"]).ok();
    assert!(table.starts_with("AT ") && table.contains("local") && table.contains("pause"), "{table}");
    assert!(server.everytick(&["audit", "--actor", "eve"]).stderr.contains("no changes"));
}

#[test]
fn the_view_of_a_job_has_headers_variables_workdir_and_followers() {
    let server = with_shell();
    let hook = [
        "job",
        "create",
        "hook",
        "--url",
        "https://example.org/h",
        "--secret",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ];
    let headers = ["--header", "X-Team: billing", "--header", "Authorization: Bearer s3cr3t"];
    server.everytick(&[&hook[..], &headers].concat()).ok();
    let text = server.everytick(&["job", "get", "hook"]).ok();
    for part in ["X-Team: billing", "Authorization: ********", "Signed", "by a secret"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("s3cr3t") && !text.contains("whsec_"), "{text}");
    let shell =
        ["job", "create", "cmd", "--env", "WHO=world", "--env", "API_TOKEN=t0ken", "--workdir", "/tmp", "--", "true"];
    server.everytick(&shell).ok();
    for name in ["z", "y"] {
        server.everytick(&["job", "create", name, "--after", "cmd", "--queue", "q"]).ok();
    }
    let text = server.everytick(&["job", "get", "cmd"]).ok();
    for part in ["API_TOKEN, WHO", "/tmp", "Followers", "y, z"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("t0ken") && !text.contains("world"), "{text}");
    let job = server.everytick(&["job", "get", "cmd", "-o", "json"]);
    assert_eq!(job.json()["followers"], json!(["y", "z"]));
}

#[test]
fn a_cancelled_run_shows_who_cancelled_it() {
    let server = Server::start();
    server.everytick(&["job", "create", "j", "--queue", "q"]).ok();
    let run = server.everytick(&["job", "trigger", "j"]).ok().trim().to_owned();
    server.everytick(&["job", "cancel", "j"]).ok();
    let text = server.everytick(&["run", "get", &run]).ok();
    assert!(text.contains("Cancelled by") && text.contains("local"), "{text}");
    let list = server.everytick(&["run", "list"]).ok();
    assert!(list.contains("request, by local"), "{list}");
    assert_eq!(server.everytick(&["run", "get", &run, "-o", "json"]).json()["cancelled_by"], "local");
}
