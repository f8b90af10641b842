//! How a command ends when it does not end well: one message on stderr, and an exit code that scripts can tell apart.

use std::{fmt, io, process::ExitCode};

use crate::{logging, output};

/// The exit codes, as `--help` lists them. They are public: scripts branch on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// It went wrong, or the server refused it.
    Failed = 1,
    /// The command line, a variable or the configuration file is wrong. Clap exits with the same.
    Usage = 2,
    NotFound = 3,
    /// The name is taken, the version is stale, or the run's state forbids it.
    Conflict = 4,
    NoServer = 5,
}

/// A failure with an exit code of its own. Any other error exits with [`Exit::Failed`].
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints the error and gives its exit code. A reader that went away (`| head`) had what it wanted: that is no error.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let gone = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(gone) {
        return ExitCode::SUCCESS;
    }
    last_line(&format!("{error:#}"));
    let exit = error.downcast_ref::<Failure>().map_or(Exit::Failed, |failure| failure.exit);
    ExitCode::from(exit as u8)
}

/// Writes `error: ...` as the last line before the process ends. During `serve` it goes through the queue of the log: a log
/// thread that is blocked in a write has stderr locked, and a node that must end would wait for it.
pub(crate) fn last_line(message: &str) {
    let text = output::error_text(message);
    if !logging::last_line(&text) {
        output::note_line(&text);
    }
}
