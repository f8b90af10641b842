//! `everytick job create --batch`: creates many jobs from a file, one per line.

use std::path::Path;

use serde::Deserialize;

use super::document;
use crate::{
    client::{Client, FieldError},
    failure::{Exit, Failure},
    output::{self, Output},
};

/// The result of one line of a batch.
#[derive(Debug, Deserialize)]
struct BatchLine {
    line: u64,
    name: Option<String>,
    status: u16,
    #[serde(default)]
    errors: Vec<FieldError>,
    #[serde(default)]
    warnings: Vec<FieldError>,
}

/// Creates every valid job and lists the errors of the others.
pub(super) async fn create_batch(client: &Client, out: Output, path: &Path) -> anyhow::Result<()> {
    let text = document::read_text("--batch", path)?;
    let answer = client.post(&["jobs", "batch"]).body("application/x-ndjson", text.into_bytes()).lines().await?;
    let (mut made, mut refused) = (0_u64, 0_u64);
    for line in answer {
        let read: BatchLine = line.read()?;
        if out.is_json() {
            out.json_line(&line)?;
        }
        let name = read.name.map(|name| format!(" ({name})")).unwrap_or_default();
        let at = format!("{}: line {}{name}", path.display(), read.line);
        for warning in &read.warnings {
            output::note_line(&format!("{at}: warning: {}", warning.line()));
        }
        if (200..300).contains(&read.status) {
            made += 1;
            continue;
        }
        refused += 1;
        let errors: Vec<String> = read.errors.iter().map(FieldError::line).collect();
        output::note_line(&format!("{at}: {}", errors.join("; ")));
    }
    if !out.is_json() {
        out.line(&format!("{made} created, {refused} refused"))?;
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::new(
            Exit::Failed,
            if made == 0 {
                format!("all {refused} jobs were refused")
            } else {
                format!("{refused} of {} jobs were refused; the others were created", made + refused)
            },
        )
        .into()),
    }
}
