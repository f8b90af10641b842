//! The README's commands, as a newcomer would type them.

use crate::support::{Server, wait_for};

/// The lines of the README's `sh` blocks that talk to a running server: all but the building and starting of it.
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
                "the README has a command that this test does not know: {line}"
            ),
            _ => {}
        }
    }
    found
}

#[test]
fn every_command_of_the_readme_does_what_it_says() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_everytick")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    for line in &commands {
        let mut command = std::process::Command::new("sh");
        let run = command.args(["-c", line]).env("PATH", &path).env("EVERYTICK_SERVER", server.url());
        let done = run.current_dir(server.dir()).output().unwrap();
        let (said, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{line}\n{said}{complained}");
        if line.starts_with("everytick job create hello") {
            wait_for("the first run of the README's job", || {
                let runs = server.everytick(&["run", "list"]);
                runs.stdout.contains("succeeded").then_some(())
            });
        }
        if line == "everytick run list" {
            assert!(said.contains("hello") && said.contains("succeeded"), "{said}");
        }
    }
}
