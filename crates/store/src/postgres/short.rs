//! The stored form of definitions. New jobs are stored in compact form (`domain::short`) once every live node can read
//! it: a node of an earlier step would ignore them. From the first compact definition on, the schema step requires a
//! release that can read it, so no earlier release starts any more. Both forms stay readable; an edit writes the whole
//! form.

use everytick_domain::{job::JobSpec, short::Short};
use serde_json::Error;

use super::{Failed, Write, sql};
use crate::{Result, StoreError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Whole,
    Short,
}

/// The form for new jobs. Checked each time: a node of an earlier step that was suspended may resume and join again.
pub(super) async fn form(write: &mut Write) -> Result<Form> {
    let (readers_only, shut): (bool, bool) =
        sqlx::query_as(sql!("setup/short_readers")).fetch_one(&mut *write.tx).await.failed(write.doing)?;
    if !readers_only {
        return Ok(Form::Whole);
    }
    if !shut {
        sqlx::query(sql!("setup/short_only")).execute(&mut *write.tx).await.failed(write.doing)?;
    }
    Ok(Form::Short)
}

pub(super) fn text(spec: &JobSpec, form: Form) -> Result<String> {
    let text = match form {
        Form::Whole => serde_json::to_string(spec),
        Form::Short => serde_json::to_string(&Short::of(spec)),
    };
    text.map_err(|error| StoreError::Refused { doing: "write the definition", source: error.into() })
}

/// A whole document begins with the job's name; a compact one has none.
pub(super) fn read(name: &str, text: &str) -> std::result::Result<JobSpec, Error> {
    if text.starts_with("{\"name\":") {
        return serde_json::from_str(text);
    }
    let short: Short<'_> = serde_json::from_str(text)?;
    short.whole(name).ok_or_else(|| serde::de::Error::custom("it has no target"))
}
