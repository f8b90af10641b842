//! Tenants from outside: the commands, and what the leader does in the background.

use serde_json::Value;

use crate::support::{Done, Server, wait_for};

const URL: &str = "https://example.org/hook";

fn as_token(server: &Server, token: &str, args: &[&str]) -> Done {
    let mut command = server.command(args);
    command.env("XDG_CONFIG_HOME", server.dir().join("none")).env("EVERYTICK_TOKEN", token.trim());
    command.output().unwrap().into()
}

#[test]
fn a_tenant_is_created_used_suspended_resumed_and_deleted() {
    let server = Server::start();
    server.everytick(&["job", "create", "ours", "--every", "1h", "--url", URL]).ok();
    let root = server.everytick(&["token", "create", "root", "--role", "instance"]).ok();
    let root = |args: &[&str]| as_token(&server, &root, args);
    root(&["tenant", "create", "team-a", "--max-jobs", "2", "--host", "*.example.org", "--host", "example.org"]).ok();
    root(&["tenant", "create", "team-a"]).failed(4);
    root(&["tenant", "get", "team-b"]).failed(3);
    assert!(root(&["tenant", "list"]).ok().contains("team-a"));
    let admin = root(&["token", "create", "admin", "--role", "admin", "--tenant", "team-a"]).ok();
    let team = |args: &[&str]| as_token(&server, &admin, args);
    team(&["job", "create", "a", "--every", "1h", "--url", URL]).ok();
    team(&["job", "create", "b", "--every", "1h", "--url", URL]).ok();
    assert!(team(&["job", "create", "c", "--url", URL]).failed(4).contains("2 jobs"));
    assert!(!team(&["job", "list"]).ok().contains("ours"));
    team(&["job", "get", "ours"]).failed(3);
    team(&["job", "pause", "b"]).ok();
    let refused = team(&["job", "update", "a", "--url", "https://example.net/"]).failed(1);
    assert!(refused.contains("egress.hosts"), "{refused}");
    team(&["tenant", "update", "--own", "--https-only"]).ok();
    assert!(root(&["tenant", "get", "team-a"]).ok().contains("only https"));
    team(&["tenant", "list"]).failed(1);

    let done = |what: &str| {
        wait_for(what, || {
            let tenant = root(&["tenant", "get", "team-a", "-o", "json"]).json();
            (tenant["work"] == Value::Null).then_some(())
        });
    };
    root(&["tenant", "suspend", "team-a"]).ok();
    assert!(team(&["job", "list"]).failed(1).contains("suspended"));
    done("the jobs to be paused");
    root(&["tenant", "resume", "team-a"]).ok();
    done("the jobs to be resumed");
    let paused = |job: &str| team(&["job", "get", job, "-o", "json"]).json()["paused"] != Value::Null;
    assert!(!paused("a") && paused("b"), "the suspension had not paused b");
    let trail = team(&["audit", "-o", "json"]).json();
    let actions: Vec<_> =
        trail["items"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert!(actions.contains(&"suspend_tenant") && actions.contains(&"resume"), "{actions:?}");

    root(&["tenant", "delete", "team-a", "--force"]).failed(4);
    root(&["tenant", "suspend", "team-a", "--cancel-runs"]).ok();
    root(&["tenant", "delete", "team-a"]).failed(4);
    root(&["tenant", "delete", "team-a", "--force"]).ok();
    assert_eq!(team(&["job", "list"]).code, 1, "its tokens have ended");
    wait_for("the tenant to be removed", || (root(&["tenant", "get", "team-a"]).code == 3).then_some(()));
    assert!(root(&["tenant", "list"]).ok().contains("default"));
}
