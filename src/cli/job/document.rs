//! The JSON of a job that a command sends. It contains only fields whose flag is set: for a new job the server adds its
//! defaults, and an update changes nothing else.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::Path,
};

use anyhow::Context;
use everytick_domain::{
    job::PAYLOAD_BYTES_MAX,
    wrong_input::{json_syntax, os_error},
};
use serde::Serialize;
use serde_json::{Map, Value, error::Category, json, value::RawValue};

use crate::{failure::Failure, output};

/// The limit of the API for one job.
const JOB_BYTES_MAX: usize = 1024 * 1024;
/// Larger files are not read into memory: a batch of 100,000 jobs is smaller.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
const SHOWN_CHARS_MAX: usize = 40;

/// The JSON of a job. The payload stays raw text, because it is delivered byte for byte.
#[derive(Debug, Default, Serialize)]
pub(super) struct Document {
    #[serde(flatten)]
    pub(super) fields: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<Box<RawValue>>,
}

/// Fields that the server adds to a job. Reading a file drops them, so that the output of `job get -o json` is valid input.
const SET_BY_SERVER: [&str; 14] = [
    "id",
    "version",
    "created_at",
    "created_by",
    "updated_at",
    "next_tick",
    "last_run",
    "paused",
    "pause_note",
    "effective_at",
    "cancelled",
    "warnings",
    "backlog",
    "followers",
];

impl Document {
    /// Reads a job from a file. `-` is stdin. A file that no server accepts is refused here, before it is sent.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = read_text("--file", path)?;
        if text.len() > JOB_BYTES_MAX {
            let (file, size) = (path.display(), text.len());
            let message =
                format!("{file} has {size} bytes; a job has at most {JOB_BYTES_MAX} (1 MiB). --batch reads many jobs");
            return Err(Failure::usage(message).into());
        }
        let wrong = |error: serde_json::Error| {
            let what = match error.classify() {
                Category::Data => {
                    "write a job as an object such as {\"name\": \"nightly\", \"target\": {...}}".to_owned()
                }
                Category::Syntax | Category::Eof | Category::Io => json_syntax(&error.to_string()),
            };
            Failure::usage(format!("{} does not contain a job as JSON: {what}", path.display()))
        };
        let mut parts: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).map_err(wrong)?;
        parts.retain(|name, _| !SET_BY_SERVER.contains(&name.as_str()));
        let payload = parts.remove("payload");
        let fields = parts.into_iter().map(|(name, raw)| Ok((name, serde_json::from_str(raw.get())?)));
        Ok(Self { fields: fields.collect::<Result<_, _>>().map_err(wrong)?, payload })
    }

    pub(super) fn name(&mut self, name: String) {
        self.fields.insert("name".to_owned(), Value::String(name));
    }

    pub(super) fn payload(&mut self, payload: Option<Box<RawValue>>) {
        self.payload = payload;
    }

    pub(super) fn force(&mut self) {
        self.fields.insert("force".to_owned(), Value::Bool(true));
    }

    /// The zone of the job's schedule.
    pub(super) fn zone(&self) -> Option<String> {
        self.fields.get("schedule")?.get("timezone")?.as_str().map(ToOwned::to_owned)
    }

    pub(super) fn has_name(&self) -> bool {
        self.fields.contains_key("name")
    }

    pub(super) fn has_schedule(&self) -> bool {
        self.fields.get("schedule").is_some_and(Value::is_object)
    }

    pub(super) fn has_target(&self) -> bool {
        self.fields.contains_key("target")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.payload.is_none()
    }

    /// Merges `other` into this document. Its fields win.
    pub(super) fn overlay(&mut self, other: Self) {
        merge(&mut self.fields, other.fields);
        self.payload = other.payload.or(self.payload.take());
    }

    pub(super) fn set(&mut self, path: &[&str], value: Value) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut at = &mut self.fields;
        for parent in parents {
            let slot = at.entry(*parent).or_insert_with(|| json!({}));
            if !slot.is_object() {
                *slot = json!({});
            }
            let Some(object) = slot.as_object_mut() else { return };
            at = object;
        }
        at.insert((*last).to_owned(), value);
    }

    pub(super) fn set_some(&mut self, path: &[&str], value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(path, value.into());
        }
    }
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// Reads raw JSON text from the command line or from a `@file`.
pub(crate) fn payload(text: &str) -> anyhow::Result<Box<RawValue>> {
    let text = match text.strip_prefix('@') {
        Some(path) => read_text("--payload", Path::new(path))?,
        None => text.to_owned(),
    };
    if text.len() > PAYLOAD_BYTES_MAX {
        let message = format!("--payload has {} bytes; at most {PAYLOAD_BYTES_MAX} (256 KiB) are allowed", text.len());
        return Err(Failure::usage(message).into());
    }
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        // The parser of values has the more exact message, such as for a comma at the end.
        let error = serde_json::from_str::<Value>(text.trim()).err().unwrap_or(error);
        let (shown, why) = (output::first_line(text.trim(), SHOWN_CHARS_MAX), json_syntax(&error.to_string()));
        let message = format!("--payload: {shown:?} is not JSON: {why}; a string needs its own quotes: '\"hello\"'");
        Failure::usage(message).into()
    })
}

/// The text of the file that a flag names. `-` is stdin.
pub(crate) fn read_text(flag: &str, path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("could not read stdin")?;
        return Ok(text);
    }
    let unreadable =
        |error: io::Error| Failure::usage(format!("{flag}: could not read {}: {}", path.display(), os_error(&error)));
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > FILE_BYTES_MAX {
        let message =
            format!("{flag}: {} has {size} bytes; at most {FILE_BYTES_MAX} (64 MiB) are read", path.display());
        return Err(Failure::usage(message).into());
    }
    Ok(fs::read_to_string(path).map_err(unreadable)?)
}
