//! How a command reports an error: one message on stderr, and an exit code that scripts can branch on.

use std::{fmt, io, process::ExitCode};

use everytick_domain::wrong_input::without_number;

use crate::{logging, output};

/// The exit codes, as `--help` lists them. They are public: scripts branch on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// The command failed, or the server refused it.
    Failed = 1,
    /// A flag, a variable or the settings file is wrong. Clap uses the same code.
    Usage = 2,
    NotFound = 3,
    /// The name is taken, the version is stale, other jobs refer to it, the state does not allow it, or the run was skipped.
    Conflict = 4,
    NoServer = 5,
}

/// An error with its own exit code. Any other error exits with [`Exit::Failed`].
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    /// The same request may succeed later.
    temporary: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), temporary: exit == Exit::NoServer }
    }

    /// Marks an error that a later repeat of the request may not have.
    pub(crate) fn temporary_if(self, temporary: bool) -> Self {
        Self { temporary, ..self }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

/// Changes the message of a failure and keeps its exit code.
pub(crate) fn reworded(error: anyhow::Error, reword: impl FnOnce(&str) -> String) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => Failure { message: reword(&failure.message), ..failure }.into(),
        Err(error) => error,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Whether the server answered that the named thing does not exist.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    exit(error) == Exit::NotFound
}

/// The exit code of an error.
pub(crate) fn exit(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Failure>().map_or(Exit::Failed, |failure| failure.exit)
}

/// Whether a repeat of the request may succeed later: no server answers, or it is busy or broken.
pub(crate) fn is_temporary(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.temporary)
}

/// Prints the error and returns its exit code. A closed pipe (`| head`) is not an error: the reader has what it wanted.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let is_closed_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_closed_pipe) {
        return ExitCode::SUCCESS;
    }
    last_line(&causes(error));
    ExitCode::from(exit(error) as u8)
}

/// The error and its causes, each once and without numbers of the operating system. Many errors repeat the text of their cause.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| without_number(&cause.to_string())) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Writes `error: ...` as the last line before the process ends. During `serve` the line goes through the log queue. A log
/// thread that is blocked in a write keeps stderr locked, so a direct write would wait for that lock.
pub(crate) fn last_line(message: &str) {
    let text = output::error_text(message);
    if !logging::last_line(&text) {
        output::note_line(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_written_once_and_without_its_number() {
        let io = io::Error::from_raw_os_error(2);
        let doubled = anyhow::Error::new(io::Error::from_raw_os_error(2)).context(format!("could not open a.db: {io}"));
        assert_eq!(
            causes(&doubled.context("could not start")),
            "could not start: could not open a.db: No such file or directory"
        );
    }
}
