//! Writes a payload with its placeholders filled in, into a buffer of bounded size.

use std::{borrow::Cow, collections::BTreeMap, io};

use serde::Serialize;
use serde_json::Value;

use super::{
    Ancestor,
    parse::{Piece, Placeholder, pieces, read},
};
use crate::{ids::RunId, job::PAYLOAD_BYTES_MAX};

/// A buffer that refuses to grow beyond the size limit of a payload.
#[derive(Default)]
pub(super) struct Bounded(pub(super) Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Bounded {
    pub(super) fn raw(&mut self, text: &str) -> Result<(), String> {
        io::Write::write_all(self, text.as_bytes()).map_err(|_| too_long())
    }
    fn json(&mut self, value: &impl Serialize) -> Result<(), String> {
        serde_json::to_writer(self, value).map_err(|_| too_long())
    }
}

fn too_long() -> String {
    format!("the filled-in payload is too long; at most {PAYLOAD_BYTES_MAX} bytes (256 KiB) are allowed")
}

/// Fills in one payload.
pub(super) struct Filling<'a> {
    flow: RunId,
    parents: &'a BTreeMap<&'a str, Ancestor<'a>>,
    known: Vec<&'a str>,
    /// The last parsed output. Only one is kept: fifty parents may each have 64 KiB of output, and parsed output is far larger.
    parsed: Option<(String, Value)>,
}

impl<'a> Filling<'a> {
    pub(super) fn new(flow: RunId, parents: &'a BTreeMap<&'a str, Ancestor<'a>>) -> Self {
        Self { flow, parents, known: parents.keys().copied().collect(), parsed: None }
    }

    pub(super) fn payload(mut self, value: &Value) -> Result<String, String> {
        let mut bytes = Bounded::default();
        self.write(value, &mut bytes)?;
        String::from_utf8(bytes.0).map_err(|error| error.to_string())
    }

    fn write(&mut self, value: &Value, to: &mut Bounded) -> Result<(), String> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => to.json(value),
            Value::String(text) => self.write_text(text, to),
            Value::Array(items) => {
                to.raw("[")?;
                for (index, item) in items.iter().enumerate() {
                    to.raw(if index > 0 { "," } else { "" })?;
                    self.write(item, to)?;
                }
                to.raw("]")
            }
            Value::Object(fields) => {
                to.raw("{")?;
                for (index, (name, field)) in fields.iter().enumerate() {
                    to.raw(if index > 0 { "," } else { "" })?;
                    to.json(name)?;
                    to.raw(":")?;
                    self.write(field, to)?;
                }
                to.raw("}")
            }
        }
    }

    fn write_text(&mut self, text: &str, to: &mut Bounded) -> Result<(), String> {
        let pieces = pieces(text)?;
        if let [Piece::Placeholder(placeholder)] = &pieces[..] {
            return to.json(&*self.find(placeholder)?);
        }
        let mut filled = Bounded::default();
        for piece in pieces {
            match piece {
                Piece::Text(text) => filled.raw(text)?,
                Piece::Placeholder(placeholder) => match &*self.find(placeholder)? {
                    Value::String(text) => filled.raw(text)?,
                    value => filled.json(value)?,
                },
            }
        }
        to.json(&String::from_utf8_lossy(&filled.0))
    }

    fn find(&mut self, placeholder: &str) -> Result<Cow<'_, Value>, String> {
        let refused = |why: String| format!("{{{{ {} }}}}: {why}", placeholder.trim());
        let known = read(placeholder, &self.known)?;
        let (Placeholder::Run { parent } | Placeholder::Error { parent } | Placeholder::Output { parent, .. }) = &known
        else {
            return Ok(Cow::Owned(Value::String(match &known {
                Placeholder::Secret { name } => format!("{{{{ secrets.{name} }}}}"),
                _ => self.flow.to_string(),
            })));
        };
        let found = self.parents.get(parent.as_str()).copied();
        let ancestor = found.ok_or_else(|| refused(format!("{parent:?} is not a parent in this flow")))?;
        match &known {
            Placeholder::Output { path, .. } => self.output(parent, ancestor, path).map(Cow::Borrowed).map_err(refused),
            Placeholder::Error { .. } => {
                Ok(Cow::Owned(ancestor.error.map_or(Value::Null, |error| Value::String(error.to_owned()))))
            }
            Placeholder::Run { .. } | Placeholder::Flow | Placeholder::Secret { .. } => {
                Ok(Cow::Owned(Value::String(ancestor.run.to_string())))
            }
        }
    }

    fn output(&mut self, name: &str, parent: Ancestor<'_>, path: &[String]) -> Result<&Value, String> {
        if self.parsed.as_ref().is_none_or(|(of, _)| of != name) {
            let state = parent.state.word();
            let output =
                parent.output.ok_or_else(|| format!("the run of {name:?}, which is {state}, has no output"))?;
            let read = match serde_json::from_str(output) {
                Ok(read) => read,
                // A reference to the whole output accepts any text.
                Err(_) if path.is_empty() => Value::String(output.to_owned()),
                Err(error) => return Err(format!("the output of {name:?} is not JSON: {error}")),
            };
            self.parsed = Some((name.to_owned(), read));
        }
        let mut found = self.parsed.as_ref().map(|(_, read)| read).ok_or("it has no output")?;
        for (depth, step) in path.iter().enumerate() {
            let inner = match found {
                Value::Object(fields) => fields.get(step),
                Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => None,
            };
            found = inner.ok_or_else(|| format!("the output of {name:?} has no {:?}", path[..=depth].join(".")))?;
        }
        Ok(found)
    }
}
