//! What a child's payload takes from its parents: `{{ parents.NAME.output.path }}`, `{{ parents.NAME.run }}` and `{{ flow }}`
//! inside the strings of its JSON. A string that is nothing but one such place becomes the value with its type; inside other
//! text the value is put in as text. Checked when the job is defined, filled in when the child's run is made.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    ids::RunId,
    invalid::Invalid,
    job::{JobSpec, PAYLOAD_BYTES_MAX},
    run::State,
};

/// A parent's run, as far as a payload may take from it.
#[derive(Clone, Copy, Debug)]
pub struct Ancestor<'a> {
    pub run: RunId,
    pub state: State,
    pub output: Option<&'a str>,
}

/// What stands between the braces.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Flow,
    Run { parent: String },
    Output { parent: String, path: Vec<String> },
}

/// A piece of a string.
enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
}

/// What is wrong with the places in a definition's payload. Only a job that has parents has such places.
pub(super) fn problems(spec: &JobSpec) -> Vec<Invalid> {
    let (Some(payload), false) = (&spec.payload, spec.depends_on.is_empty()) else { return Vec::new() };
    let Ok(value) = serde_json::from_str::<Value>(payload) else { return Vec::new() };
    let known: Vec<&str> = spec.depends_on.iter().map(|parent| parent.job.as_str()).collect();
    let mut wrong = Vec::new();
    each_string(&value, &mut |text| match pieces(text) {
        Err(why) => wrong.push(why),
        Ok(pieces) => wrong.extend(pieces.into_iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Place(place) => read(place, &known).err(),
        })),
    });
    wrong.into_iter().map(|why| Invalid::new("payload", why)).collect()
}

/// The payload with its places filled in; `None` when it has none. The error names the place and what is missing.
pub fn render(
    payload: Option<&str>,
    flow: RunId,
    parents: &BTreeMap<&str, Ancestor<'_>>,
) -> Result<Option<String>, String> {
    let Some(payload) = payload.filter(|payload| payload.contains("{{")) else { return Ok(None) };
    let Ok(mut value) = serde_json::from_str::<Value>(payload) else { return Ok(None) };
    let known: Vec<&str> = parents.keys().copied().collect();
    let mut outputs = Outputs::default();
    let mut fill = |place: &str| match read(place, &known)? {
        Place::Flow => Ok(Value::String(flow.to_string())),
        Place::Run { parent } => {
            let parent = parents.get(parent.as_str()).ok_or_else(|| not_there(place, &parent))?;
            Ok(Value::String(parent.run.to_string()))
        }
        Place::Output { parent, path } => {
            let ancestor = parents.get(parent.as_str()).ok_or_else(|| not_there(place, &parent))?;
            outputs.find(&parent, ancestor, &path).map_err(|why| format!("{{{{ {} }}}}: {why}", place.trim()))
        }
    };
    let changed = fill_in(&mut value, &mut fill)?;
    if !changed {
        return Ok(None);
    }
    let filled = value.to_string();
    if filled.len() > PAYLOAD_BYTES_MAX {
        return Err(format!("it is {} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are delivered", filled.len()));
    }
    Ok(Some(filled))
}

fn not_there(place: &str, parent: &str) -> String {
    format!("{{{{ {} }}}}: {parent:?} is no parent in this flow", place.trim())
}

/// Outputs, each read once.
#[derive(Default)]
struct Outputs(BTreeMap<String, Value>);

impl Outputs {
    fn find(&mut self, name: &str, parent: &Ancestor<'_>, path: &[String]) -> Result<Value, String> {
        if !self.0.contains_key(name) {
            let output = parent
                .output
                .ok_or_else(|| format!("the run of {name:?}, which is {}, has no output", parent.state.word()))?;
            let read = match serde_json::from_str(output) {
                Ok(read) => read,
                // Whole it may be any text.
                Err(_) if path.is_empty() => Value::String(output.to_owned()),
                Err(error) => return Err(format!("the output of {name:?} is not JSON: {error}")),
            };
            self.0.insert(name.to_owned(), read);
        }
        let mut found = self.0.get(name).ok_or("it has no output")?;
        for (depth, step) in path.iter().enumerate() {
            let inner = match found {
                Value::Object(fields) => fields.get(step),
                Value::Array(items) => step.parse::<usize>().ok().and_then(|place| items.get(place)),
                _ => None,
            };
            found = inner.ok_or_else(|| format!("the output of {name:?} has no {:?}", path[..=depth].join(".")))?;
        }
        Ok(found.clone())
    }
}

fn fill_in(value: &mut Value, fill: &mut impl FnMut(&str) -> Result<Value, String>) -> Result<bool, String> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(false),
        Value::Array(items) => items.iter_mut().try_fold(false, |any, item| Ok(fill_in(item, fill)? || any)),
        Value::Object(fields) => fields.values_mut().try_fold(false, |any, field| Ok(fill_in(field, fill)? || any)),
        Value::String(text) => {
            let pieces = pieces(text)?;
            let filled = match &pieces[..] {
                [Piece::Place(place)] => fill(place)?,
                pieces if pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) => return Ok(false),
                pieces => {
                    let mut filled = String::new();
                    for piece in pieces {
                        match piece {
                            Piece::Text(text) => filled.push_str(text),
                            Piece::Place(place) => match fill(place)? {
                                Value::String(text) => filled.push_str(&text),
                                value => filled.push_str(&value.to_string()),
                            },
                        }
                    }
                    Value::String(filled)
                }
            };
            *value = filled;
            Ok(true)
        }
    }
}

fn each_string(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| each_string(item, each)),
        Value::Object(fields) => fields.values().for_each(|field| each_string(field, each)),
    }
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(opens) = rest.find("{{") {
        let (before, inside) = (&rest[..opens], &rest[opens + 2..]);
        let closes = inside.find("}}").ok_or_else(|| format!("{:?} opens {{{{ and does not close it", shown(text)))?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Place(&inside[..closes]));
        rest = &inside[closes + 2..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// Reads a place. Names may hold dots, so the parents that there are say where one ends.
fn read(place: &str, known: &[&str]) -> Result<Place, String> {
    let inside = place.trim();
    let wrong = |why: &str| {
        let right = "write {{ parents.NAME.output.field }}, {{ parents.NAME.run }} or {{ flow }}";
        Err(format!("{{{{ {} }}}} {why}; {right}", shown(inside)))
    };
    if inside == "flow" {
        return Ok(Place::Flow);
    }
    let Some(rest) = inside.strip_prefix("parents.") else { return wrong("names nothing") };
    let after = |name: &&str| {
        let rest = rest.strip_prefix(*name)?;
        (rest == ".run" || rest == ".output" || rest.starts_with(".output.")).then_some(rest)
    };
    let found =
        known.iter().filter_map(|name| after(name).map(|rest| (*name, rest))).max_by_key(|(name, _)| name.len());
    let Some((name, rest)) = found else {
        let named = rest.split(".output").next().unwrap_or(rest).trim_end_matches(".run");
        return if known.contains(&named) {
            wrong("names no part of that parent's run")
        } else {
            wrong(&format!("names {:?}, which is not in depends_on", shown(named)))
        };
    };
    let parent = name.to_owned();
    match rest.strip_prefix(".output") {
        None => Ok(Place::Run { parent }),
        Some("") => Ok(Place::Output { parent, path: Vec::new() }),
        Some(path) => {
            let path: Vec<String> = path[1..].split('.').map(str::to_owned).collect();
            if path.iter().any(String::is_empty) {
                wrong("has an empty step")
            } else {
                Ok(Place::Output { parent, path })
            }
        }
    }
}

fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 100;
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flow::{DependsOn, When},
        plan::tests::spec,
        time::{DbTime, Span},
    };

    const OUTPUT: &str = r#"{"rows": 12, "files": [{"name": "a.csv"}], "note": "done", "none": null}"#;

    fn rendered(payload: &str) -> Result<Option<String>, String> {
        let run = RunId::floor(DbTime::EPOCH);
        let parent = |output| Ancestor { run, state: State::Succeeded, output };
        let parents = BTreeMap::from([
            ("extract", parent(Some(OUTPUT))),
            ("v1.2", parent(Some(r#"{"ok": true}"#))),
            ("plain", parent(Some("not JSON"))),
            ("mute", parent(None)),
        ]);
        render(Some(payload), run, &parents)
    }

    #[test]
    fn a_place_alone_keeps_its_type_and_one_in_text_is_text() {
        for (payload, filled) in [
            (r#"{"n": "{{ parents.extract.output.rows }}"}"#, Some(r#"{"n":12}"#)),
            (r#"["{{parents.extract.output.files.0.name}}"]"#, Some(r#"["a.csv"]"#)),
            (r#""{{ parents.extract.output.none }}""#, Some("null")),
            (r#""{{ parents.extract.output.files }}""#, Some(r#"[{"name":"a.csv"}]"#)),
            (
                r#""{{ parents.extract.output.rows }} rows, {{ parents.extract.output.note }}""#,
                Some(r#""12 rows, done""#),
            ),
            (r#""{{ parents.v1.2.output.ok }}""#, Some("true")),
            (r#""{{ parents.plain.output }}""#, Some(r#""not JSON""#)),
            (r#""{{ flow }}""#, Some(r#""00000000-0000-0000-0000-000000000000""#)),
            (r#""{{ parents.mute.run }}!""#, Some(r#""00000000-0000-0000-0000-000000000000!""#)),
            // Nothing to fill in: the job's own bytes are delivered.
            (r#"{"b": 1, "a": "{"}"#, None),
            (r#"{"{{ key }}": 1}"#, None),
        ] {
            assert_eq!(rendered(payload), Ok(filled.map(str::to_owned)), "{payload}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_path() {
        for (payload, why) in [
            (r#""{{ parents.extract.output.rowz }}""#, r#"the output of "extract" has no "rowz""#),
            (r#""{{ parents.extract.output.files.7.name }}""#, r#"the output of "extract" has no "files.7""#),
            (r#""{{ parents.mute.output }}""#, r#"the run of "mute", which is succeeded, has no output"#),
            (r#""{{ parents.plain.output.x }}""#, r#"the output of "plain" is not JSON"#),
            (r#""{{ parents.other.output.x }}""#, r#"names "other", which is not in depends_on"#),
        ] {
            let said = rendered(payload).unwrap_err();
            assert!(said.contains(why), "{payload}: {said}");
        }
    }

    #[test]
    fn what_grows_too_large_is_refused() {
        let run = RunId::floor(DbTime::EPOCH);
        let long = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX / 2));
        let parents = BTreeMap::from([("a", Ancestor { run, state: State::Succeeded, output: Some(&long) })]);
        let twice = r#"["{{ parents.a.output }}", "{{ parents.a.output }}"]"#;
        assert!(render(Some(twice), run, &parents).unwrap_err().contains("at most 262144"));
    }

    #[test]
    fn a_definition_is_told_what_is_wrong_with_its_places() {
        let told = |payload: &str, parents: &[&str]| {
            let mut spec = spec(Span::minutes(1));
            spec.payload = Some(payload.to_owned());
            spec.depends_on =
                parents.iter().map(|name| DependsOn { job: (*name).to_owned(), when: When::default() }).collect();
            problems(&spec).into_iter().map(|invalid| invalid.to_string()).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(told(r#"{"n": "{{ parents.a.output.rows }} {{ flow }}"}"#, &["a"]), "");
        assert_eq!(told(r#""{{ whatever }}""#, &[]), "", "a job without parents delivers its bytes as they are");
        for (payload, wrong) in [
            (r#""{{ parents.b.output.rows }}""#, "names \"b\", which is not in depends_on"),
            (r#""{{ parents.a.input }}""#, "names \"a.input\", which is not in depends_on"),
            (r#""{{ parents.a.output..x }}""#, "has an empty step"),
            (r#""{{ parent.a.output }}""#, "names nothing"),
            (r#""{{ flow""#, "does not close it"),
        ] {
            assert!(told(payload, &["a"]).contains(wrong), "{payload}: {}", told(payload, &["a"]));
        }
    }
}
