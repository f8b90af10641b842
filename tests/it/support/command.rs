//! Runs one command to its end.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Returns stdout. Panics if the command failed.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns stderr. Panics if the command did not end with this exit code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.stderr
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The binary under test, with an empty environment except PATH, in a directory of the caller's choice.
pub(crate) fn everytick_command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_everytick"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(dir)
        .env("XDG_CONFIG_HOME", dir.join("config"));
    command
}

/// Runs the binary in an empty directory, without settings.
pub(crate) fn everytick(args: &[&str]) -> Done {
    let dir = tempfile::tempdir().unwrap();
    everytick_command(dir.path()).args(args).stdin(Stdio::null()).output().unwrap().into()
}

/// Runs a command with this text on stdin.
pub(crate) fn with_stdin(command: &mut Command, text: &str) -> Done {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}
