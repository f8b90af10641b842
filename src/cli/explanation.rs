//! Prints an explanation, for `job explain` and `run explain`.

use serde::Deserialize;

use crate::{
    client::{Answer, Request},
    output::Output,
    times::Times,
};

#[derive(Debug, Deserialize)]
struct Explanation {
    message: String,
    #[serde(default)]
    details: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
}

/// Sends the request and prints the answer. Its text has the times in the zone of the job, else in the local zone; with `--utc`,
/// in UTC.
pub(crate) async fn ask(out: Output, request: Request<'_>) -> anyhow::Result<()> {
    let utc = out.times().is_utc().then_some(true);
    let zone = Times::local_name().filter(|_| utc.is_none());
    print(out, &request.query_some("utc", utc).query_some("zone", zone).send().await?)
}

/// Prints the answer, its details, and the commands that help, one per line.
fn print(out: Output, answer: &Answer) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let explanation: Explanation = answer.read()?;
    out.line(&printable(&explanation.message))?;
    for detail in &explanation.details {
        out.line(&format!("  {}", printable(detail)))?;
    }
    for command in &explanation.commands {
        out.line(&format!("  $ {}", printable(command)))?;
    }
    Ok(())
}

/// Error texts come from targets and may have several lines and escape sequences.
fn printable(text: &str) -> String {
    crate::output::printable(text).replace('\n', "\n    ")
}
