//! The stored form of definitions. New jobs are stored in compact form (`domain::compact`) once every live node can read
//! it: a node of an earlier step would ignore them. From the first compact definition on, the schema step requires a
//! release that can read it, so no earlier release starts any more. Both forms stay readable; an edit writes the full
//! form.

use everytick_domain::{compact::CompactSpec, job::JobSpec};
use serde_json::Error;

use super::DbTx;
use crate::{Result, StoreError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Full,
    Compact,
}

/// The form for new jobs. Checked each time: a node of an earlier step that was suspended may resume and join again.
pub(super) async fn form(write: &mut DbTx) -> Result<Form> {
    let (readers_only, shut): (bool, bool) = write.fetch_one_as(query!("setup/short_readers")).await?;
    if !readers_only {
        return Ok(Form::Full);
    }
    if !shut {
        write.execute(query!("setup/short_only")).await?;
    }
    Ok(Form::Compact)
}

pub(super) fn text(spec: &JobSpec, form: Form) -> Result<String> {
    let text = match form {
        Form::Full => serde_json::to_string(spec),
        Form::Compact => serde_json::to_string(&CompactSpec::of(spec)),
    };
    text.map_err(|error| StoreError::Refused { doing: "write the definition", source: error.into() })
}

/// A full document begins with the job's name; a compact one has none.
pub(super) fn read(name: &str, text: &str) -> std::result::Result<JobSpec, Error> {
    if text.starts_with("{\"name\":") {
        return serde_json::from_str(text);
    }
    let compact: CompactSpec<'_> = serde_json::from_str(text)?;
    compact.expand(name).ok_or_else(|| serde::de::Error::custom("it has no target"))
}
