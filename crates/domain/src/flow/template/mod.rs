//! Placeholders in a child's payload: `{{ parents.NAME.output.path }}`, `{{ parents.NAME.error }}`, `{{ parents.NAME.run }}`
//! and `{{ flow }}` inside the strings of its JSON. A string that is only one placeholder becomes the value with its type.
//! Inside other text the value is inserted as text. Placeholders are checked when the job is defined and filled in when the
//! child's run is created. Rendering writes into a buffer of bounded size and keeps one parsed output at a time, so memory is
//! bounded.

mod fill;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use self::{
    fill::Filling,
    parse::{Piece, each_string, pieces, read, shown},
};
use crate::{ids::RunId, invalid::Invalid, job::JobSpec, run::State};

/// Maximum number of placeholders in one payload.
pub const PLACEHOLDERS_MAX: usize = 100;

/// The parts of a parent's run that a payload may use.
#[derive(Clone, Copy, Debug)]
pub struct Ancestor<'a> {
    pub run: RunId,
    pub state: State,
    pub output: Option<&'a str>,
    pub error: Option<&'a str>,
}

/// The errors in the placeholders of a definition's payload.
pub(super) fn problems(spec: &JobSpec) -> Vec<Invalid> {
    let Some(value) = template(spec.payload.as_deref()) else { return Vec::new() };
    let wrong = match parent_placeholder(&value) {
        Some(placeholder) if spec.depends_on.is_empty() => {
            vec![format!("{{{{ {placeholder} }}}} refers to a parent, but depends_on is empty")]
        }
        // A job without parents delivers its payload unchanged.
        None if spec.depends_on.is_empty() => Vec::new(),
        Some(placeholder) if spec.schedule.is_some() => vec![format!(
            "{{{{ {placeholder} }}}} refers to a parent, but the job has a schedule: its ticks belong to no flow; \
             remove the schedule, or create another job for it"
        )],
        _ => wrong_placeholders(&value, spec),
    };
    wrong.into_iter().map(|why| Invalid::new("payload", why)).collect()
}

fn wrong_placeholders(value: &Value, spec: &JobSpec) -> Vec<String> {
    let known: Vec<&str> = spec.depends_on.iter().map(|parent| parent.job.as_str()).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    each_string(value, &mut |text| match pieces(text) {
        Err(why) => wrong.push(why),
        Ok(pieces) => {
            for piece in pieces {
                if let Piece::Placeholder(placeholder) = piece {
                    count += 1;
                    wrong.extend(read(placeholder, &known).err().filter(|_| count <= PLACEHOLDERS_MAX));
                }
            }
        }
    });
    if count > PLACEHOLDERS_MAX { vec![too_many(count)] } else { wrong }
}

fn too_many(count: usize) -> String {
    format!("has {count} placeholders {{{{ ... }}}}; at most {PLACEHOLDERS_MAX} are allowed")
}

/// Refuses a run outside a flow whose payload refers to parents. `own` is the run's own payload, which replaces the job's.
pub fn check_outside(spec: &JobSpec, own: Option<&str>) -> Result<(), Invalid> {
    let payload = if own.is_some() { None } else { spec.payload.as_deref() };
    match template(payload).as_ref().and_then(parent_placeholder) {
        None => Ok(()),
        Some(placeholder) => Err(Invalid::new(
            "payload",
            format!(
                "the job's payload refers to {{{{ {placeholder} }}}}, but this run would belong to no flow; \
                 give the run a payload of its own, or trigger the job at the root of the flow"
            ),
        )),
    }
}

/// Whether a payload may have placeholders.
#[must_use]
pub fn is_template(payload: Option<&str>) -> bool {
    payload.is_some_and(|payload| payload.contains("{{"))
}

fn template(payload: Option<&str>) -> Option<Value> {
    payload.filter(|payload| is_template(Some(payload))).and_then(|payload| serde_json::from_str(payload).ok())
}

/// The first placeholder that refers to a parent.
fn parent_placeholder(value: &Value) -> Option<String> {
    let mut found = None;
    each_string(value, &mut |text| {
        for piece in pieces(text).unwrap_or_default() {
            if let Piece::Placeholder(placeholder) = piece
                && placeholder.trim().starts_with("parents.")
            {
                found.get_or_insert_with(|| shown(placeholder.trim()));
            }
        }
    });
    found
}

/// The payload with its placeholders filled in; `None` if the payload has no placeholders. The error names the placeholder and
/// the missing value.
pub fn render(
    payload: Option<&str>,
    flow: RunId,
    parents: &BTreeMap<&str, Ancestor<'_>>,
) -> Result<Option<String>, String> {
    let Some(value) = template(payload) else { return Ok(None) };
    let count = count_placeholders(&value)?;
    if count == 0 {
        return Ok(None);
    }
    if count > PLACEHOLDERS_MAX {
        return Err(too_many(count));
    }
    Filling::new(flow, parents).payload(&value).map(Some)
}

fn count_placeholders(value: &Value) -> Result<usize, String> {
    let mut count = Ok(0);
    each_string(value, &mut |text| {
        let here =
            pieces(text).map(|pieces| pieces.iter().filter(|piece| matches!(piece, Piece::Placeholder(_))).count());
        count = match (&count, here) {
            (Ok(before), Ok(here)) => Ok(before + here),
            (Ok(_), Err(why)) => Err(why),
            (Err(why), _) => Err(why.clone()),
        };
    });
    count
}
