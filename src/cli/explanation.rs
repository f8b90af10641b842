//! Prints an explanation, for `job explain` and `run explain`.

use serde::Deserialize;

use crate::{
    client::{Answer, Client, Request},
    output::Output,
    times::Times,
};

#[derive(Debug, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) details: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
}

/// Sends the request and prints the answer. Its text has the times in the zone of the job, else in the local zone; with `--utc`,
/// in UTC.
pub(crate) async fn ask(out: Output, request: Request<'_>) -> anyhow::Result<()> {
    print(out, &in_zone(out, request).send().await?)
}

/// The explanation of a run. `None` if the server does not give one: the caller has a general text.
pub(crate) async fn of_run(out: Output, client: &Client, run: &str) -> Option<Explanation> {
    in_zone(out, client.get(&["runs", run, "explain"])).send().await.ok()?.read().ok()
}

fn in_zone(out: Output, request: Request<'_>) -> Request<'_> {
    let utc = out.times().is_utc().then_some(true);
    let zone = Times::local_name().filter(|_| utc.is_none());
    request.query_some("utc", utc).query_some("zone", zone)
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
