//! Placeholders in a child's payload: `{{ parents.NAME.output.path }}`, `{{ parents.NAME.error }}`, `{{ parents.NAME.run }}`
//! and `{{ flow }}` inside the strings of its JSON. A string that is only one placeholder becomes the value with its type.
//! Inside other text the value is inserted as text. Placeholders are checked when the job is defined and filled in when the
//! child's run is created. Rendering writes into a buffer of bounded size and keeps one parsed output at a time, so memory is
//! bounded.

use std::{borrow::Cow, collections::BTreeMap, io};

use serde::Serialize;
use serde_json::Value;

use crate::{
    ids::RunId,
    invalid::Invalid,
    job::{JobSpec, PAYLOAD_BYTES_MAX},
    run::State,
};

/// Most placeholders in one payload.
pub const PLACEHOLDERS_MAX: usize = 100;

/// The parts of a parent's run that a payload may use.
#[derive(Clone, Copy, Debug)]
pub struct Ancestor<'a> {
    pub run: RunId,
    pub state: State,
    pub output: Option<&'a str>,
    pub error: Option<&'a str>,
}

/// A parsed placeholder.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Placeholder {
    Flow,
    Run { parent: String },
    Error { parent: String },
    Output { parent: String, path: Vec<String> },
}

/// A piece of a string.
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// The errors in the placeholders of a definition's payload.
pub(super) fn problems(spec: &JobSpec) -> Vec<Invalid> {
    let Some(value) = template(spec.payload.as_deref()) else { return Vec::new() };
    let wrong = match taken(&value) {
        Some(place) if spec.depends_on.is_empty() => {
            vec![format!("{{{{ {place} }}}} refers to a parent, but depends_on is empty")]
        }
        // A job without parents delivers its payload unchanged.
        None if spec.depends_on.is_empty() => Vec::new(),
        Some(place) if spec.schedule.is_some() => vec![format!(
            "{{{{ {place} }}}} refers to a parent, but the job has a schedule: its ticks belong to no flow; \
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
                if let Piece::Placeholder(place) = piece {
                    count += 1;
                    wrong.extend(read(place, &known).err().filter(|_| count <= PLACEHOLDERS_MAX));
                }
            }
        }
    });
    if count > PLACEHOLDERS_MAX { vec![too_many(count)] } else { wrong }
}

fn too_many(count: usize) -> String {
    format!("has {count} placeholders {{{{ ... }}}}; at most {PLACEHOLDERS_MAX} are allowed")
}

/// Refuses a run outside a flow whose payload refers to parents. `own` is the payload that the run brings itself.
pub fn check_outside(spec: &JobSpec, own: Option<&str>) -> Result<(), Invalid> {
    let payload = if own.is_some() { None } else { spec.payload.as_deref() };
    match template(payload).as_ref().and_then(taken) {
        None => Ok(()),
        Some(place) => Err(Invalid::new(
            "payload",
            format!(
                "the job's payload refers to {{{{ {place} }}}}, but this run would belong to no flow; \
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
fn taken(value: &Value) -> Option<String> {
    let mut found = None;
    each_string(value, &mut |text| {
        for piece in pieces(text).unwrap_or_default() {
            if let Piece::Placeholder(place) = piece
                && place.trim().starts_with("parents.")
            {
                found.get_or_insert_with(|| shown(place.trim()));
            }
        }
    });
    found
}

/// The payload with its placeholders filled in; `None` if it has none. The error names the placeholder and what is missing.
pub fn render(
    payload: Option<&str>,
    flow: RunId,
    parents: &BTreeMap<&str, Ancestor<'_>>,
) -> Result<Option<String>, String> {
    let Some(value) = template(payload) else { return Ok(None) };
    let count = count_places(&value)?;
    if count == 0 {
        return Ok(None);
    }
    if count > PLACEHOLDERS_MAX {
        return Err(too_many(count));
    }
    let known = parents.keys().copied().collect();
    let mut bytes = Bounded::default();
    Filling { flow, parents, known, parsed: None }.write(&value, &mut bytes)?;
    String::from_utf8(bytes.0).map(Some).map_err(|error| error.to_string())
}

fn count_places(value: &Value) -> Result<usize, String> {
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

/// A buffer that refuses to grow beyond the size limit of a payload.
#[derive(Default)]
struct Bounded(Vec<u8>);

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
    fn raw(&mut self, text: &str) -> Result<(), String> {
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
struct Filling<'a> {
    flow: RunId,
    parents: &'a BTreeMap<&'a str, Ancestor<'a>>,
    known: Vec<&'a str>,
    /// The last parsed output. Only one is kept: fifty parents may each have 64 KiB of output, and parsed output is far larger.
    parsed: Option<(String, Value)>,
}

impl Filling<'_> {
    fn write(&mut self, value: &Value, to: &mut Bounded) -> Result<(), String> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => to.json(value),
            Value::String(text) => self.write_text(text, to),
            Value::Array(items) => {
                to.raw("[")?;
                for (place, item) in items.iter().enumerate() {
                    to.raw(if place > 0 { "," } else { "" })?;
                    self.write(item, to)?;
                }
                to.raw("]")
            }
            Value::Object(fields) => {
                to.raw("{")?;
                for (place, (name, field)) in fields.iter().enumerate() {
                    to.raw(if place > 0 { "," } else { "" })?;
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
        if let [Piece::Placeholder(place)] = &pieces[..] {
            return to.json(&*self.find(place)?);
        }
        let mut filled = Bounded::default();
        for piece in pieces {
            match piece {
                Piece::Text(text) => filled.raw(text)?,
                Piece::Placeholder(place) => match &*self.find(place)? {
                    Value::String(text) => filled.raw(text)?,
                    value => filled.json(value)?,
                },
            }
        }
        to.json(&String::from_utf8_lossy(&filled.0))
    }

    fn find(&mut self, place: &str) -> Result<Cow<'_, Value>, String> {
        let refused = |why: String| format!("{{{{ {} }}}}: {why}", place.trim());
        let known = read(place, &self.known)?;
        let (Placeholder::Run { parent } | Placeholder::Error { parent } | Placeholder::Output { parent, .. }) = &known
        else {
            return Ok(Cow::Owned(Value::String(self.flow.to_string())));
        };
        let found = self.parents.get(parent.as_str()).copied();
        let ancestor = found.ok_or_else(|| refused(format!("{parent:?} is not a parent in this flow")))?;
        match &known {
            Placeholder::Output { path, .. } => self.output(parent, ancestor, path).map(Cow::Borrowed).map_err(refused),
            Placeholder::Error { .. } => {
                Ok(Cow::Owned(ancestor.error.map_or(Value::Null, |error| Value::String(error.to_owned()))))
            }
            Placeholder::Run { .. } | Placeholder::Flow => Ok(Cow::Owned(Value::String(ancestor.run.to_string()))),
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
                Value::Array(items) => step.parse::<usize>().ok().and_then(|place| items.get(place)),
                _ => None,
            };
            found = inner.ok_or_else(|| format!("the output of {name:?} has no {:?}", path[..=depth].join(".")))?;
        }
        Ok(found)
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
        let closes = inside.find("}}").ok_or_else(|| format!("{:?} has {{{{ without }}}}", shown(text)))?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Placeholder(&inside[..closes]));
        rest = &inside[closes + 2..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// Parses a placeholder. Names may contain dots, so the known parents decide where a name ends.
fn read(place: &str, known: &[&str]) -> Result<Placeholder, String> {
    let inside = place.trim();
    let wrong = |why: &str| {
        let right =
            "write {{ parents.NAME.output.field }}, {{ parents.NAME.error }}, {{ parents.NAME.run }} or {{ flow }}";
        Err(format!("{{{{ {} }}}} {why}; {right}", shown(inside)))
    };
    if inside == "flow" {
        return Ok(Placeholder::Flow);
    }
    let Some(rest) = inside.strip_prefix("parents.") else { return wrong("is not a known placeholder") };
    let after = |name: &&str| {
        let rest = rest.strip_prefix(*name)?;
        (rest == ".run" || rest == ".error" || rest == ".output" || rest.starts_with(".output.")).then_some(rest)
    };
    let found =
        known.iter().filter_map(|name| after(name).map(|rest| (*name, rest))).max_by_key(|(name, _)| name.len());
    let Some((name, rest)) = found else {
        let named = rest.split(".output").next().unwrap_or(rest).trim_end_matches(".run").trim_end_matches(".error");
        return if known.contains(&named) {
            wrong("names no known field of the parent's run")
        } else {
            wrong(&format!("names {:?}, which is not in depends_on", shown(named)))
        };
    };
    let parent = name.to_owned();
    match rest.strip_prefix(".output") {
        None if rest == ".error" => Ok(Placeholder::Error { parent }),
        None => Ok(Placeholder::Run { parent }),
        Some("") => Ok(Placeholder::Output { parent, path: Vec::new() }),
        Some(path) => {
            let path: Vec<String> = path[1..].split('.').map(str::to_owned).collect();
            if path.iter().any(String::is_empty) {
                wrong("has an empty path segment")
            } else {
                Ok(Placeholder::Output { parent, path })
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
        let parent = |output| Ancestor { run, state: State::Succeeded, output, error: None };
        let broken = Ancestor { run, state: State::Failed, output: None, error: Some("exit 1: \"no\"") };
        let parents = BTreeMap::from([
            ("extract", parent(Some(OUTPUT))),
            ("v1.2", parent(Some(r#"{"ok": true}"#))),
            ("plain", parent(Some("not JSON"))),
            ("mute", parent(None)),
            ("broken", broken),
        ]);
        render(Some(payload), run, &parents)
    }

    #[test]
    fn a_lone_placeholder_keeps_its_type_and_one_inside_text_becomes_text() {
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
            (r#""{{ parents.broken.error }}""#, Some(r#""exit 1: \"no\"""#)),
            (r#"["it said {{ parents.broken.error }}"]"#, Some(r#"["it said exit 1: \"no\""]"#)),
            (r#""{{ parents.mute.error }}""#, Some("null")),
            // Nothing to fill in: the job's payload is delivered unchanged.
            (r#"{"b": 1, "a": "{"}"#, None),
            (r#"{"{{ key }}": 1}"#, None),
        ] {
            assert_eq!(rendered(payload), Ok(filled.map(str::to_owned)), "{payload}");
        }
    }

    #[test]
    fn the_error_names_the_missing_value_and_its_path() {
        for (payload, why) in [
            (r#""{{ parents.extract.output.rowz }}""#, r#"the output of "extract" has no "rowz""#),
            (r#""{{ parents.extract.output.files.7.name }}""#, r#"the output of "extract" has no "files.7""#),
            (r#""{{ parents.mute.output }}""#, r#"the run of "mute", which is succeeded, has no output"#),
            (r#""{{ parents.plain.output.x }}""#, r#"the output of "plain" is not JSON"#),
            (r#""{{ parents.other.output.x }}""#, r#"names "other", which is not in depends_on"#),
        ] {
            let error = rendered(payload).unwrap_err();
            assert!(error.contains(why), "{payload}: {error}");
        }
    }

    #[test]
    fn a_rendered_payload_over_the_limit_is_refused() {
        let run = RunId::floor(DbTime::EPOCH);
        let long = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX / 2));
        let ancestor = Ancestor { run, state: State::Succeeded, output: Some(&long), error: None };
        let parents = BTreeMap::from([("a", ancestor)]);
        for twice in [
            r#"["{{ parents.a.output }}", "{{ parents.a.output }}"]"#,
            r#""{{ parents.a.output }} and {{ parents.a.output }}""#,
        ] {
            assert!(render(Some(twice), run, &parents).unwrap_err().contains("at most 262144"), "{twice}");
        }
    }

    #[test]
    fn the_buffer_does_not_grow_beyond_the_limit() {
        let mut bytes = Bounded::default();
        let part = "x".repeat(1_000);
        while bytes.raw(&part).is_ok() {}
        assert!(bytes.0.len() <= PAYLOAD_BYTES_MAX && bytes.0.len() > PAYLOAD_BYTES_MAX - 1_000);
    }

    /// A job of an earlier release may have that many.
    #[test]
    fn a_payload_with_too_many_placeholders_is_refused() {
        let payload = |places: usize| serde_json::json!(vec!["{{ parents.extract.output.rows }}"; places]).to_string();
        assert!(rendered(&payload(PLACEHOLDERS_MAX)).is_ok());
        let why = rendered(&payload(10_000)).unwrap_err();
        assert_eq!(why, "has 10000 placeholders {{ ... }}; at most 100 are allowed");
    }

    fn following(payload: &str, parents: &[&str]) -> JobSpec {
        let mut spec = spec(Span::minutes(1));
        (spec.payload, spec.schedule) = (Some(payload.to_owned()), None);
        spec.depends_on =
            parents.iter().map(|name| DependsOn { job: (*name).to_owned(), when: When::default() }).collect();
        spec
    }

    #[test]
    fn a_run_outside_a_flow_cannot_refer_to_parents() {
        let takes = following(r#"{"n": "{{ parents.a.output.rows }}"}"#, &["a"]);
        let refused = check_outside(&takes, None).unwrap_err();
        assert!(
            refused.message.contains("{{ parents.a.output.rows }}, but this run would belong to no flow"),
            "{}",
            refused.message
        );
        assert_eq!(check_outside(&takes, Some("{}")), Ok(()));
        assert_eq!(check_outside(&following(r#""{{ flow }}""#, &["a"]), None), Ok(()));
        assert_eq!(check_outside(&following(r#"{"n": 1}"#, &["a"]), None), Ok(()));
    }

    #[test]
    fn a_definition_with_wrong_placeholders_is_refused() {
        let told = |payload: &str, parents: &[&str]| {
            problems(&following(payload, parents))
                .into_iter()
                .map(|invalid| invalid.to_string())
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(told(r#"{"n": "{{ parents.a.output.rows }} {{ flow }}"}"#, &["a"]), "");
        assert_eq!(told(r#""{{ whatever }}""#, &[]), "", "a job without parents delivers its payload unchanged");
        assert!(told(r#""{{ parents.a.run }}""#, &[]).contains("depends_on is empty"));
        let many = serde_json::json!(vec!["{{ flow }}"; PLACEHOLDERS_MAX + 1]).to_string();
        assert_eq!(told(&many, &["a"]), "payload: has 101 placeholders {{ ... }}; at most 100 are allowed");
        let ticking =
            JobSpec { schedule: spec(Span::minutes(1)).schedule, ..following(r#""{{ parents.a.run }}""#, &["a"]) };
        assert!(problems(&ticking)[0].message.contains("the job has a schedule"));
        for (payload, wrong) in [
            (r#""{{ parents.b.output.rows }}""#, "names \"b\", which is not in depends_on"),
            (r#""{{ parents.a.input }}""#, "names \"a.input\", which is not in depends_on"),
            (r#""{{ parents.a.output..x }}""#, "has an empty path segment"),
            (r#""{{ parent.a.output }}""#, "is not a known placeholder"),
            (r#""{{ flow""#, "has {{ without }}"),
        ] {
            assert!(told(payload, &["a"]).contains(wrong), "{payload}: {}", told(payload, &["a"]));
        }
    }
}
