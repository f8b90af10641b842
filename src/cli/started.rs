//! A run that a command has started: `job trigger` and `run rerun` print its id, and follow it with `--wait`. Only the id
//! goes to stdout, so that scripts can store it; the words go to stderr.

use std::time::Duration;

use clap::Args;

use super::run::{RunView, shown_state};
use crate::{
    client::{Answer, Client},
    failure::{Exit, Failure},
    output::{self, Output},
};

/// Poll interval of `--wait`.
const POLLED_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Wait until the run has ended, and show its state
    #[arg(long)]
    wait: bool,
}

impl Wait {
    /// Prints the run of the answer, and follows it if requested.
    pub(crate) async fn report(&self, client: &Client, out: Output, started: Answer) -> anyhow::Result<()> {
        let run: RunView = started.read()?;
        let follows = self.wait && run.is_open();
        if !out.is_json() {
            out.line(&run.id)?;
        } else if !follows {
            out.json(&started)?;
        }
        if !follows {
            return if self.wait { run.ended_well() } else { run.was_started() };
        }
        let ended = follow(client, out, &run.id).await?;
        if out.is_json() {
            out.json(&ended)?;
        }
        ended.read::<RunView>()?.ended_well()
    }
}

/// Polls until the run has ended, and writes a line to stderr for each change of its state.
async fn follow(client: &Client, out: Output, id: &str) -> anyhow::Result<Answer> {
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut shown = String::new();
    loop {
        let answer = client.get(&["runs", id]).send().await?;
        let run: RunView = answer.read()?;
        if !run.is_open() {
            return Ok(answer);
        }
        let progress = run.progress(out);
        if progress != shown {
            output::note_line(&progress);
            shown = progress;
        }
        tokio::select! {
            _ = &mut interrupted => {
                let message = format!(
                    "stopped waiting; the run continues. Show it with `everytick run get {id}`, cancel it with \
                     `everytick run cancel {id}`"
                );
                return Err(Failure::new(Exit::Failed, message).into());
            }
            () = tokio::time::sleep(POLLED_EVERY) => {}
        }
    }
}

impl RunView {
    /// Whether the run waits or is in progress.
    fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "waiting" | "claimed")
    }

    fn progress(&self, out: Output) -> String {
        match (self.state.as_str(), self.attempt) {
            ("waiting", 0) => format!("{}: waiting", self.job),
            ("waiting", attempt) => {
                // Not cut: the remedy is at the end.
                let error = self.error.as_ref().map(|error| format!(": {}", error.lines().next().unwrap_or_default()));
                let due = out.time(&self.due_at);
                format!("{}: attempt {attempt} failed{}; retried at {due}", self.job, error.unwrap_or_default())
            }
            (_, attempt) => format!("{}: running, attempt {attempt}", self.job),
        }
    }

    /// The result of a command that only starts the run.
    fn was_started(&self) -> anyhow::Result<()> {
        if self.state == "skipped" {
            return Err(self.skipped().into());
        }
        output::note_line(&format!("{}: the run is {}", self.job, shown_state(&self.state)));
        Ok(())
    }

    /// The result of a command that waits for the end of the run.
    fn ended_well(&self) -> anyhow::Result<()> {
        let error = self.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        match self.state.as_str() {
            "succeeded" => {
                output::note_line(&format!("{}: succeeded after {}", self.job, self.duration()));
                Ok(())
            }
            "skipped" => Err(self.skipped().into()),
            "cancelled" => Err(Failure::new(Exit::Failed, format!("{}: the run was cancelled", self.job)).into()),
            state => Err(Failure::new(Exit::Failed, format!("{}: the run {state}{error}", self.job)).into()),
        }
    }

    fn skipped(&self) -> Failure {
        let reason = self.skip_reason.as_deref().unwrap_or_default();
        let why = match reason {
            // The words of the reason include a newer tick, which a request cannot have.
            "overlap" => format!(
                "as many runs of the job as its overlap policy allows are still open; `everytick run explain {}` names them; \
                 start it anyway with --force",
                self.id
            ),
            _ => self.because(None),
        };
        Failure::new(Exit::Conflict, format!("{}: skipped ({reason}): {why}", self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> RunView {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_command_that_waits_fails_unless_the_run_succeeded() {
        run(r#"{"job": "j", "state": "succeeded"}"#).ended_well().unwrap();
        let failed = run(r#"{"job": "j", "state": "failed", "error": "exit code 1"}"#).ended_well().unwrap_err();
        assert_eq!(failed.to_string(), "j: the run failed: exit code 1");
        let cancelled = run(r#"{"job": "j", "state": "cancelled"}"#).ended_well().unwrap_err();
        assert_eq!(cancelled.to_string(), "j: the run was cancelled");
    }

    #[test]
    fn a_failed_attempt_is_shown_with_its_error_and_its_retry() {
        let waits =
            r#"{"job": "j", "state": "waiting", "attempt": 1, "error": "exit code 3\nmore", "due_at": "later"}"#;
        let shown = run(waits).progress(Output::new(crate::output::Format::Table));
        assert_eq!(shown, "j: attempt 1 failed: exit code 3; retried at later");
    }
}
