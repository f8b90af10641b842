//! Runs the commands of the README, as a newcomer types them.

use crate::support::{Server, wait_for};

/// The `everytick` lines of the `sh` blocks in the README. Lines that build or start the server are left out.
fn commands() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let mut inside = false;
    let mut found = Vec::new();
    for line in readme.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && line.starts_with("everytick ") => found.push(line.to_owned()),
            line if inside => assert!(
                ["git clone", "cargo run --release -- serve", "export PATH="]
                    .iter()
                    .any(|begin| line.starts_with(begin)),
                "this test does not know a command of the README: {line}"
            ),
            _ => {}
        }
    }
    found
}

#[test]
fn every_command_of_the_readme_works() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_everytick")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    for line in &commands {
        let mut command = std::process::Command::new("sh");
        let run = command.args(["-c", line]).env("PATH", &path).env("EVERYTICK_SERVER", server.url());
        // The server wrote its token for commands into this folder.
        let run = run.current_dir(server.dir()).env("XDG_CONFIG_HOME", server.dir().join("config"));
        let done = run.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{line}\n{stdout}{stderr}");
        if line.starts_with("everytick job create hello") {
            wait_for("the first run of the README's job", || {
                let runs = server.everytick(&["run", "list"]);
                runs.stdout.contains("succeeded").then_some(())
            });
        }
        if line == "everytick run list" {
            assert!(stdout.contains("hello") && stdout.contains("succeeded"), "{stdout}");
        }
    }
}
