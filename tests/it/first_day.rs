//! Behaviour that a new user meets on the first day and that no other file tests.

use everytick_domain::time::Span;
use everytick_store::{SystemClock, WallClock};

use crate::support::{Server, wait_for};

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell"]).start()
}

fn state(server: &Server, run: &str) -> String {
    server.everytick(&["run", "get", run, "-o", "json"]).json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn the_explanation_of_a_paused_job_without_a_schedule_shows_its_waiting_run() {
    let server = Server::start();
    server.everytick(&["job", "create", "mail", "--queue", "mails"]).ok();
    let run = server.everytick(&["job", "trigger", "mail"]).ok().trim().to_owned();
    server.everytick(&["job", "pause", "mail"]).ok();
    let text = server.everytick(&["job", "explain", "mail"]).ok();
    for part in [&*run, "waits since", "was paused by local", "does not end its open runs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    server.everytick(&["run", "cancel", &run]).ok();
    let text = server.everytick(&["job", "explain", "mail"]).ok();
    assert!(text.contains("the job was paused") && text.contains("its newest run, "), "{text}");
}

#[test]
fn a_dry_run_of_a_delete_names_followers_that_forbid_it_and_open_runs_that_it_cancels() {
    let server = Server::start();
    let create = |args: &[&str]| server.everytick(&[&["job", "create"], args].concat()).ok();
    create(&["extract", "--queue", "q"]);
    create(&["load", "--after", "extract", "--queue", "q"]);
    create(&["other", "--queue", "q"]);
    let delete = |args: &[&str]| server.everytick(&[&["job", "delete"], args, &["--dry-run"]].concat());
    let refused = delete(&["extract"]).failed(4);
    assert!(refused.contains("extract cannot be deleted: load depends on it"), "{refused}");
    let several = delete(&["extract", "other"]);
    assert!(several.stdout.contains("other") && !several.stdout.contains("extract"), "{several:?}");
    assert!(several.stderr.contains("would delete 1 job;"), "{several:?}");
    assert!(several.failed(1).contains("extract cannot be deleted"));
    assert!(delete(&["--all"]).ok().contains("extract"), "the follower is deleted as well");
    let json = delete(&["extract", "other", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["refused"][0]["job"], &json["refused"][0]["followers"][0]), (&"extract".into(), &"load".into()));

    let run = server.everytick(&["job", "trigger", "other"]).ok().trim().to_owned();
    let dry = delete(&["other", "--cancel"]);
    assert!(dry.stderr.contains("would cancel the open runs of and delete 1 job"), "{dry:?}");
    let line = dry.stdout.lines().nth(1).unwrap_or_default();
    assert!(dry.stdout.contains("OPEN RUNS") && line.ends_with(" 1"), "{dry:?}");
    assert_eq!(state(&server, &run), "waiting");
}

#[test]
fn the_output_of_a_run_is_unchanged_in_a_pipe() {
    let server = with_shell();
    server.everytick(&["job", "create", "colour", "--shell", r"printf '\033[31mred\033[0m\a'"]).ok();
    let run = server.everytick(&["job", "trigger", "colour", "--wait"]).ok().trim().to_owned();
    let output = "\u{1b}[31mred\u{1b}[0m\u{7}";
    assert!(server.everytick(&["run", "get", &run]).ok().contains(output));
    assert_eq!(server.everytick(&["run", "log", &run]).ok(), output);
    assert_eq!(server.everytick(&["run", "get", &run, "-o", "json"]).json()["output"], output);
    let screen = crate::output::on_terminal(&server, 80, &format!("everytick run get {run}"));
    assert!(!screen.contains("\u{1b}[31mred") && !screen.contains('\u{7}') && screen.contains("red"), "{screen:?}");
}

#[test]
fn a_list_of_a_period_names_the_backfills_over_it_and_states_which_time_it_filters_by() {
    let server = with_shell();
    server.everytick(&["job", "create", "hourly", "--every", "1h", "--overlap", "allow", "--", "true"]).ok();
    let ago = |hours| SystemClock.now().minus(Span::hours(hours)).to_string();
    let (from, to) = (ago(5), ago(3));
    let made =
        server.everytick(&["job", "backfill", "hourly", "--from", &from, "--to", &to, "--wait", "-o", "json"]).json();
    let past = server.everytick(&["run", "list", "--job", "hourly", "--from", &from, "--to", &to]);
    let id = made["id"].as_str().unwrap();
    assert!(past.stderr.contains(id) && past.stderr.contains("--cause backfill`"), "{past:?}");
    let command = past.stderr.split('`').nth(1).unwrap().to_owned();
    let args: Vec<&str> = command.split_whitespace().skip(1).collect();
    let found = server.everytick(&args);
    assert_eq!(found.stdout.lines().count(), 1 + 2, "{found:?}");
    let now = server.everytick(&["run", "list", "--from", "90m ago"]);
    assert!(now.stderr.contains("one hour before its creation, not at SCHEDULED"), "{now:?}");
}

#[test]
fn a_flow_is_found_by_the_id_of_any_of_its_runs() {
    let server = with_shell();
    server.everytick(&["job", "create", "extract", "--", "true"]).ok();
    server.everytick(&["job", "create", "load", "--after", "extract", "--", "true"]).ok();
    server.everytick(&["job", "create", "alone", "--", "true"]).ok();
    let root = server.everytick(&["job", "trigger", "extract", "--wait"]).ok().trim().to_owned();
    let child = wait_for("the child", || {
        let list = server.everytick(&["job", "runs", "load", "--status", "succeeded", "-o", "json"]).json();
        list["items"][0]["id"].as_str().map(str::to_owned)
    });
    for id in [&*root, &child, &child[..20]] {
        assert_eq!(server.everytick(&["flow", "get", id, "-o", "json"]).json()["id"], *root, "{id}");
    }
    let alone = server.everytick(&["job", "trigger", "alone", "--wait"]).ok().trim().to_owned();
    server.everytick(&["flow", "get", &alone]).failed(3);
    server.everytick(&["flow", "cancel", &child]).failed(3);
}

#[test]
fn a_backfill_that_has_ended_cannot_be_cancelled() {
    let server = with_shell();
    server.everytick(&["job", "create", "hourly", "--every", "1h", "--", "true"]).ok();
    let ago = |hours| SystemClock.now().minus(Span::hours(hours)).to_string();
    let backfill = ["job", "backfill", "hourly", "--from", &ago(3), "--to", &ago(2), "--wait", "-o", "json"];
    let id = server.everytick(&backfill).json()["id"].as_str().unwrap().to_owned();
    for flags in [&[][..], &["--runs"]] {
        let refused = server.everytick(&[&["backfill", "cancel", &id], flags].concat()).failed(4);
        assert!(refused.contains("it is done; only a running backfill can be cancelled"), "{refused}");
    }
}

#[test]
fn a_preview_in_utc_has_no_local_column_and_names_an_ends_at_before_the_next_tick() {
    let server = Server::start();
    let zoned = ["--cron", "0 2 * * *", "--tz", "America/New_York", "--queue", "q"];
    server.everytick(&[&["job", "create", "nightly"][..], &zoned].concat()).ok();
    let next = |flags: &[&str]| server.everytick(&[&["job", "next", "nightly", "-n", "2"], flags].concat()).ok();
    assert!(next(&[]).contains("LOCAL"));
    let utc = next(&["--utc"]);
    assert!(!utc.contains("LOCAL") && !utc.contains("-0"), "{utc}");
    let in_seconds = |seconds| SystemClock.now().plus(Span::seconds(seconds)).to_string();
    let (starts, ends) = (in_seconds(2), in_seconds(600));
    let brief = ["--every", "1h", "--starts-at", &starts, "--ends-at", &ends, "--queue", "q"];
    server.everytick(&[&["job", "create", "brief"][..], &brief].concat()).ok();
    wait_for("its only tick", || server.everytick(&["job", "runs", "brief"]).ok().contains("waiting").then_some(()));
    for args in [&["job", "next", "brief"][..], &["job", "explain", "brief"]] {
        let done = server.everytick(args);
        let text = format!("{}{}", done.stdout, done.stderr);
        assert!(text.contains("(ends_at), before its next tick"), "{text}");
    }
}

#[test]
fn a_command_that_cannot_start_fails_with_its_cause() {
    let server = with_shell();
    for (name, command, part) in [
        ("path", &["--", "no-such-command"][..], "the command does not exist in PATH (/"),
        ("file", &["--", "/no/such/file"], "the file does not exist on the node"),
        ("folder", &["--workdir", "/no/such", "--", "true"], "its workdir \"/no/such\" is not a folder"),
        ("data", &["--", "/etc/passwd"], "it is not executable"),
    ] {
        server.everytick(&[&["job", "create", name][..], command].concat()).ok();
        let run = server.everytick(&["job", "trigger", name, "--wait"]);
        assert!(run.stderr.contains(part), "{part}: {run:?}");
        let text = server.everytick(&["job", "explain", name]).ok();
        assert!(text.contains(part) && !text.contains("os error"), "{text}");
    }
}

#[test]
fn a_stale_version_is_reported_with_the_flag() {
    let server = Server::start();
    server.everytick(&["job", "create", "j", "--queue", "q"]).ok();
    for args in [
        &["job", "update", "j", "--if-version", "7", "--timeout", "1m"][..],
        &["job", "delete", "j", "--if-version", "7"],
    ] {
        let refused = server.everytick(args).failed(4);
        assert!(refused.starts_with("error: --if-version: the current version is 1"), "{refused}");
        assert!(!refused.contains("If-Match"), "{refused}");
    }
}

#[test]
fn tables_keep_names_ids_and_errors_in_80_columns() {
    let server = with_shell();
    let name = "extract-orders-of-europe";
    let cron = ["--cron", "0 2 * * 1-5", "--tz", "America/Argentina/Buenos_Aires", "--max-retries", "0"];
    server.everytick(&[&["job", "create", name][..], &cron, &["--shell", "exit 3"]].concat()).ok();
    server.everytick(&["job", "trigger", name, "--wait"]).failed(1);
    server.everytick(&["job", "update", name, "--timeout", "77s"]).ok();
    let ago = |days| SystemClock.now().minus(Span::days(days)).to_string();
    server.everytick(&["job", "backfill", name, "--from", &ago(9), "--to", &ago(2), "--wait"]).failed(1);
    let check = |args: &[&str], parts: &[&str]| {
        let text = server.everytick(args).ok();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 80, "{args:?}: {widest} columns:\n{text}");
        for part in parts {
            assert!(text.contains(part), "{args:?}: {part}:\n{text}");
        }
    };
    check(&["audit"], &[name, "create", "backfill", "ACTOR", "token:lo"]);
    check(&["job", "list"], &[name, " failed ", "LAST RUN"]);
    assert!(server.everytick(&["job", "list"]).ok().lines().nth(1).unwrap().ends_with(|c: char| c.is_ascii_digit()));
    check(&["run", "list"], &[name, "exit code 3"]);
    check(&["backfill", "list", "--job", name], &["BACKFILL", "done"]);
    check(&["run", "redrive", name, "--from", "6 days ago", "--dry-run"], &["would be created", "exit code 3"]);
    check(&["run", "redrive", name, "--from", "6 days ago"], &["CREATED", "now", "runs created"]);
}

#[test]
fn a_list_of_jobs_shows_short_schedules_whole_in_80_columns() {
    let server = with_shell();
    let zoned = ["--cron", "0 6 * * 1-5", "--tz", "Europe/Paris", "--url", "https://example.org/a/long/path/of/a/hook"];
    server.everytick(&[&["job", "create", "report"][..], &zoned].concat()).ok();
    server.everytick(&["job", "create", "hello", "--shell", "echo a command with many words in it"]).ok();
    server.everytick(&["job", "trigger", "hello", "--wait"]).ok();
    let text = server.everytick(&["job", "list"]).ok();
    assert!(text.contains("0 6 * * 1-5") && text.contains("when triggered"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn tokens_fit_80_columns_and_are_found_by_the_beginning_of_their_id() {
    let server = Server::builder().flags(&["--enable-shell", "--node-name", "n"]).start();
    server.everytick(&["token", "create", "emails-and-reports", "--role", "worker", "--queue", "emails"]).ok();
    let text = server.everytick(&["token", "list"]).ok();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in ["local-worker@n", "emails-and-reports", "worker", "EXPIRES", "USED"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let listed = server.everytick(&["token", "list", "-o", "json"]).json();
    let id = |name: &str| {
        let item = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == name).unwrap();
        item["id"].as_str().unwrap().to_owned()
    };
    let (one, other) = (id("local-worker@n"), id("emails-and-reports"));
    let shared = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    if shared >= 8 {
        let refused = server.everytick(&["token", "revoke", &other[..shared]]).failed(4);
        assert!(refused.contains("several tokens; write more of the id"), "{refused}");
    }
    let revoked = server.everytick(&["token", "revoke", &other[..shared.max(18) + 2]]);
    assert!(revoked.stderr.contains("revoked emails-and-reports"), "{revoked:?}");
    assert_eq!(revoked.stderr.lines().count(), 1, "{revoked:?}");
}

#[test]
fn a_missing_permission_is_a_sentence_and_an_ignored_token_is_a_warning() {
    let server = with_shell();
    let token = server.everytick(&["token", "create", "w", "--role", "worker", "--queue", "q"]).ok();
    let refused = server.command(&["job", "list"]).env("EVERYTICK_TOKEN", token.trim()).output().unwrap();
    let refused = crate::support::Done::from(refused).failed(1);
    assert!(refused.contains("the permission \"read\"") && refused.contains("`everytick whoami`"), "{refused}");

    std::fs::write(server.dir().join("client.toml"), format!("server = {:?}", server.url())).unwrap();
    let mut command = server.command(&["--config", "client.toml", "whoami"]);
    command.env_remove("EVERYTICK_SERVER").env("EVERYTICK_TOKEN", token.trim());
    let done = crate::support::Done::from(command.output().unwrap());
    assert!(done.stdout.contains("local-admin@"), "{done:?}");
    assert!(done.stderr.contains("warning: EVERYTICK_TOKEN is ignored"), "{done:?}");
    assert!(done.stderr.contains("--server or EVERYTICK_SERVER"), "{done:?}");
}

#[test]
fn a_skipped_trigger_names_the_command_that_shows_the_run_in_the_way() {
    let server = Server::start();
    server.everytick(&["job", "create", "mail", "--queue", "q"]).ok();
    let first = server.everytick(&["job", "trigger", "mail"]).ok().trim().to_owned();
    let skipped = server.everytick(&["job", "trigger", "mail"]);
    let id = skipped.stdout.trim().to_owned();
    let refused = skipped.failed(4);
    assert!(refused.contains(&format!("`everytick run explain {id}`")) && !refused.contains("newer tick"), "{refused}");
    assert!(server.everytick(&["run", "explain", &id]).ok().contains(&first));
}

#[test]
fn a_job_without_retries_and_a_cancel_of_an_ended_run_are_explained() {
    let server = with_shell();
    server.everytick(&["job", "create", "hello", "--", "true"]).ok();
    assert!(server.everytick(&["job", "get", "hello"]).ok().contains("none; retry when lost"));
    let run = server.everytick(&["job", "trigger", "hello", "--wait"]).ok().trim().to_owned();
    let refused = server.everytick(&["run", "cancel", &run]).failed(4);
    assert!(refused.contains("the run has ended: it is succeeded"), "{refused}");
}

#[test]
fn an_unknown_action_and_an_open_server_in_the_settings_file_are_explained() {
    let server = Server::start();
    let none = server.everytick(&["audit", "--action", "fly"]);
    assert!(none.stderr.contains("no changes; \"fly\" is not an action: write one of create, "), "{none:?}");
    let none = server.everytick(&["audit", "--action", "pause"]);
    assert_eq!(none.stderr, "no changes\n");
    std::fs::write(server.dir().join("open.toml"), "slots = 5\nauth = \"open\"\n").unwrap();
    let refused = server.everytick(&["--config", "open.toml", "serve"]).failed(2);
    assert!(
        refused.contains("open.toml: line 2: auth: open is accepted only on the command line (--auth open)"),
        "{refused}"
    );
}

#[test]
fn the_dates_of_a_calendar_fit_80_columns() {
    let server = Server::start();
    let mut args = vec!["calendar", "set", "closed", "--date", "2026-12-27/2026-12-31", "--yearly", "05-01"];
    let dates: Vec<String> = (1..=12).map(|month| format!("2027-{month:02}-15")).collect();
    dates.iter().for_each(|date| args.extend(["--date", date.as_str()]));
    server.everytick(&args).ok();
    let text = server.everytick(&["calendar", "get", "closed"]).ok();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(dates.iter().all(|date| text.contains(date)) && text.contains("05-01"), "{text}");
}

#[test]
fn a_wrong_server_in_the_environment_is_named_with_its_variable() {
    let server = Server::start();
    let mut command = server.command(&["job", "list"]);
    let refused = crate::support::Done::from(command.env("EVERYTICK_SERVER", "foo").output().unwrap()).failed(2);
    assert!(refused.contains("--server (from EVERYTICK_SERVER): \"foo\""), "{refused}");
    assert!(server.everytick(&["--server", "foo", "job", "list"]).failed(2).contains("--server: \"foo\""));
}
