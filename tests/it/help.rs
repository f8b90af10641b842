//! The help texts, the version and the completions of the command line.

use crate::support::everytick;

#[test]
fn help_shows_the_first_steps_and_the_exit_codes() {
    let text = everytick(&["--help"]).ok();
    for expected in [
        "everytick job create hello --every 10s --queue hello",
        "5  no server answers",
        "EVERYTICK_SERVER",
        "--output <FORMAT>",
        "everytick.toml",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn help_lists_exactly_the_implemented_commands() {
    let commands = |args: &[&str]| -> Vec<String> {
        let text = everytick(&[args, &["--help"]].concat()).ok();
        let list = text.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
        let words = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        words.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(
        commands(&[]),
        [
            "serve",
            "job",
            "run",
            "backfill",
            "flow",
            "calendar",
            "queue",
            "worker",
            "cluster",
            "token",
            "tenant",
            "secret",
            "login",
            "logout",
            "whoami",
            "access",
            "audit",
            "cron",
            "recover",
            "move",
            "bench",
            "completions",
            "help",
        ]
    );
    assert_eq!(commands(&["backfill"]), ["list", "get", "cancel", "help"]);
    assert_eq!(commands(&["queue"]), ["list", "get", "set", "help"]);
    let job = [
        "create", "list", "get", "update", "delete", "pause", "resume", "trigger", "backfill", "cancel", "next",
        "explain", "runs", "help",
    ];
    assert_eq!(commands(&["job"]), job);
    assert_eq!(commands(&["run"]), ["list", "get", "explain", "cancel", "rerun", "redrive", "log", "attempts", "help"]);
    assert_eq!(commands(&["calendar"]), ["set", "get", "list", "delete", "help"]);
    let secret = ["set", "list", "get", "delete", "rotate", "keygen", "rekey", "import-inline", "help"];
    assert_eq!(commands(&["secret"]), secret);
    let tenant = ["create", "list", "get", "update", "suspend", "resume", "delete", "help"];
    assert_eq!(commands(&["tenant"]), tenant);
    assert_eq!(commands(&["flow"]), ["list", "get", "cancel", "rerun", "help"]);
    assert_eq!(commands(&["cron"]), ["explain", "next", "help"]);
}

#[test]
fn the_help_of_every_command_has_one_line_examples() {
    for command in [
        "serve",
        "job create",
        "job list",
        "job get",
        "job update",
        "job delete",
        "job pause",
        "job resume",
        "job trigger",
        "job backfill",
        "job cancel",
        "job next",
        "job explain",
        "job runs",
        "run list",
        "run get",
        "run cancel",
        "run rerun",
        "run redrive",
        "run log",
        "run attempts",
        "backfill list",
        "backfill get",
        "backfill cancel",
        "calendar set",
        "calendar get",
        "calendar list",
        "calendar delete",
        "queue list",
        "queue get",
        "queue set",
        "worker",
        "cluster",
        "audit",
        "flow list",
        "flow get",
        "flow cancel",
        "flow rerun",
        "cron explain",
        "cron next",
        "recover",
        "move",
        "tenant create",
        "tenant list",
        "tenant get",
        "tenant update",
        "tenant suspend",
        "tenant resume",
        "tenant delete",
        "completions",
    ] {
        let text = everytick(&command.split(' ').chain(["--help"]).collect::<Vec<_>>()).ok();
        let examples = text.split("Examples:\n").nth(1).unwrap_or_else(|| panic!("{command}: {text}"));
        for line in examples.lines().take_while(|line| !line.is_empty()) {
            assert!(line.starts_with("  everytick ") || line.starts_with("  EVERYTICK_"), "{command}: {line}");
        }
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(everytick(&["--version"]).ok(), format!("everytick {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = everytick(&["completions", shell]).ok();
        assert!(script.contains("everytick") && script.contains("drain-timeout"), "{shell}");
    }
    assert!(everytick(&["completions", "tcsh"]).failed(2).contains("bash"));
}

#[test]
fn an_invalid_command_line_exits_with_2() {
    for args in [
        &[][..],
        &["job"],
        &["job", "create"],
        &["apply"],
        &["run", "get"],
        &["serve", "--lisen", "x"],
        &["-o", "yaml", "job", "list"],
    ] {
        everytick(args).failed(2);
    }
}
