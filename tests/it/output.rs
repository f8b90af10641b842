//! The output of runs: how much is missing, and what reaches a terminal.

use crate::support::{Server, wait_for};

fn server() -> Server {
    Server::builder().flags(&["--enable-shell", "--auth", "open"]).start()
}

/// Runs a shell line as a job and returns the id of its ended run.
fn ran(server: &Server, script: &str) -> String {
    server.everytick(&["job", "create", "job", "--shell", script]).ok();
    let id = server.everytick(&["job", "trigger", "job"]).ok().trim().to_owned();
    wait_for("the end of the run", || {
        let run = server.everytick(&["run", "get", &id, "-o", "json"]).json();
        (run["state"] == "succeeded").then_some(())
    });
    id
}

/// What a command writes to a terminal of this width.
pub(crate) fn on_terminal(server: &Server, columns: usize, command: &str) -> String {
    let screen = server.script(&format!("script -qec 'stty cols {columns} rows 24; {command}' /dev/null </dev/null"));
    screen.replace("\r\n", "\n")
}

/// The lines of a screen without the colours that the command itself writes.
pub(crate) fn plain(screen: &str) -> String {
    let mut parts = screen.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[test]
fn a_truncated_output_states_how_many_bytes_are_missing() {
    let server = server();
    let id = ran(&server, "seq 100000");
    let run = server.everytick(&["run", "get", &id, "-o", "json"]).json();
    let (output, missing) = (run["output"].as_str().unwrap(), run["output_truncated_bytes"].as_u64().unwrap());
    let (first, rest) = output.split_once('\n').unwrap();
    assert_eq!(first, format!("[everytick: the first {missing} bytes of this output are not stored]"));
    assert_eq!(missing as usize + rest.len(), 588_895, "of the bytes that it printed");
    let attempts = server.everytick(&["run", "attempts", &id, "-o", "json"]).json();
    assert_eq!(attempts["items"][0]["output_truncated_bytes"], missing);
    assert_eq!(server.everytick(&["run", "log", &id]).ok(), output);
    assert!(server.everytick(&["run", "get", &id]).ok().contains(first));
}

#[test]
fn a_long_line_fits_the_terminal_and_is_whole_in_a_pipe() {
    let server = server();
    let id = ran(&server, "head -c 3000 /dev/zero | tr '\\0' x");
    for columns in [50, 80, 200] {
        let screen = plain(&on_terminal(&server, columns, &format!("everytick run get {id}")));
        let widest = screen.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns, "{widest} columns of {columns}:\n{screen}");
        assert_eq!(screen.matches('x').count(), 3_000, "{screen}");
    }
    assert!(server.everytick(&["run", "get", &id]).ok().contains(&"x".repeat(3_000)));
}

#[test]
fn control_characters_of_an_output_reach_a_pipe_and_no_terminal() {
    let server = server();
    let printed = r"\033]0;title\007\033[31mred\033[0m\tdone\r\n\303\251";
    let id = ran(&server, &format!("printf '{printed}'"));
    let raw = "\x1b]0;title\x07\x1b[31mred\x1b[0m\tdone\r\n\u{e9}";
    assert_eq!(server.everytick(&["run", "log", &id]).ok(), raw);
    assert_eq!(server.everytick(&["run", "get", &id, "-o", "json"]).json()["output"], raw);
    for command in ["run log", "run get", "run get -o json"] {
        let screen = on_terminal(&server, 80, &format!("everytick {command} {id}"));
        let hostile = ["\x1b]", "\x07", "\x1b[31m", "\t\x1b"];
        assert!(hostile.iter().all(|part| !screen.contains(part)), "{command}: {screen:?}");
        assert!(screen.contains("red") && screen.contains('\u{e9}'), "{command}: {screen:?}");
    }
}

#[test]
fn a_run_in_progress_is_running_in_tables_and_claimed_in_json() {
    let server = server();
    let go = server.dir().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    server.everytick(&["job", "create", "job", "--shell", &script]).ok();
    let id = server.everytick(&["job", "trigger", "job"]).ok().trim().to_owned();
    wait_for("the run to start", || {
        let run = server.everytick(&["run", "get", &id, "-o", "json"]).json();
        (run["state"] == "claimed").then_some(())
    });
    for command in
        [&["run", "get", &id][..], &["run", "list"], &["run", "list", "--status", "running"], &["job", "runs", "job"]]
    {
        let shown = server.everytick(command).ok();
        assert!(shown.contains("running") && !shown.contains("claimed"), "{command:?}: {shown}");
    }
    let list = server.everytick(&["run", "list", "--status", "claimed", "-o", "json"]).json();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["state"]), (1, &"claimed".into()));
    std::fs::write(go, "").unwrap();
}
