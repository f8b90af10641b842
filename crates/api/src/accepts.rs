//! Turns an error of serde into a field and a sentence. What a field accepts is read from its schema in the OpenAPI document,
//! so the answer and the document cannot disagree, and a new field needs no text of its own.

use everytick_domain::{
    invalid::Invalid,
    wrong_input::{Accepts, ReadError},
};
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};
use utoipa::ToSchema;

/// Maximum depth at which a field is searched by its name: `url` is found as `target.http.url`.
const SEARCH_DEPTH_MAX: usize = 3;

/// Field names of other schedulers, each with the name that this API uses.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("tz", "timezone"),
    ("zone", "timezone"),
    ("webhook", "http"),
    ("interval", "every"),
    ("args", "argv"),
    ("retries", "max_retries"),
];

/// The schema of a body, with all schemas that it refers to.
pub(crate) struct BodySchema {
    root: Value,
    named: Map<String, Value>,
}

impl BodySchema {
    pub(crate) fn of<T: ToSchema>() -> Self {
        let json = |schema| serde_json::to_value(schema).unwrap_or_default();
        let mut all = Vec::new();
        T::schemas(&mut all);
        Self { root: json(T::schema()), named: all.into_iter().map(|(name, schema)| (name, json(schema))).collect() }
    }

    /// The error at `path` in `body`. `message` is serde's, without the position.
    pub(crate) fn explain(&self, path: &Path, message: &str, body: &Value) -> Invalid {
        let mut keys: Vec<Key> = path.iter().filter_map(Key::of).collect();
        let error = ReadError::of(message);
        // serde names the field in the message, and not always in the path.
        if let Some(name) = error.field()
            && keys.last() != Some(&Key::Name(name.to_owned()))
        {
            keys.push(Key::Name(name.to_owned()));
        }
        let (field, found) = (written(&keys), keys.iter().try_fold(body, |value, key| key.of_value(value)));
        let sentence = match &error {
            ReadError::UnknownField { name, .. } => self.unknown_field(&keys[..keys.len() - 1], name),
            _ => error.sentence(found, &self.accepts(&keys)),
        };
        Invalid::new(field, sentence)
    }

    fn unknown_field(&self, parent: &[Key], name: &str) -> String {
        let parent_schema = self.at(parent);
        let meant = OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, known)| known);
        if let Some(path) = self.search(&parent_schema, meant, SEARCH_DEPTH_MAX) {
            let above = written(parent);
            let path = if above.is_empty() { path } else { format!("{above}.{path}") };
            return format!("{name:?} is not a field; did you mean {path}?");
        }
        let known = parent_schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        ReadError::UnknownField { name, known: known.collect() }.sentence(None, &Accepts::Other)
    }

    /// The path of the nearest field with this name below a schema.
    fn search(&self, schema: &Value, name: &str, depth: usize) -> Option<String> {
        let properties = schema["properties"].as_object()?;
        if properties.contains_key(name) {
            return Some(name.to_owned());
        }
        let below = |(parent, schema): (&String, &Value)| {
            Some(format!("{parent}.{}", self.search(&self.resolved(schema), name, depth.checked_sub(1)?)?))
        };
        properties.iter().filter_map(below).min_by_key(|path| path.matches('.').count())
    }

    fn at(&self, keys: &[Key]) -> Value {
        keys.iter().fold(self.resolved(&self.root), |schema, key| {
            let below = match key {
                Key::Name(name) if !schema["properties"][name].is_null() => &schema["properties"][name],
                Key::Name(_) => &schema["additionalProperties"],
                Key::Index(_) => &schema["items"],
            };
            self.resolved(below)
        })
    }

    /// Follows references, and the first alternative that is not null. Keeps the example of `schema` itself, if it has one.
    fn resolved(&self, schema: &Value) -> Value {
        let example = schema.get("example").cloned();
        let mut found = schema.clone();
        for _ in 0..8 {
            let several = ["oneOf", "anyOf", "allOf"].iter().find_map(|word| found.get(word)?.as_array());
            let chosen = several.and_then(|several| several.iter().find(|one| one["type"] != "null").cloned());
            let name = found["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(ToOwned::to_owned);
            found = match (chosen, name) {
                (Some(chosen), _) => chosen,
                (None, Some(name)) => {
                    let mut named = self.named.get(&name).cloned().unwrap_or_default();
                    if let Some(object) = named.as_object_mut() {
                        object.insert("title".to_owned(), Value::String(name));
                    }
                    named
                }
                (None, None) => break,
            };
        }
        if let (Some(example), Some(object)) = (example, found.as_object_mut()) {
            object.insert("example".to_owned(), example);
        }
        found
    }

    fn accepts(&self, keys: &[Key]) -> Accepts {
        let schema = self.at(keys);
        let example = || schema.get("example").map(ToString::to_string);
        if let Some(words) = schema["enum"].as_array() {
            return Accepts::OneOf(words.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect());
        }
        match kind(&schema) {
            "string" if schema["title"] == "Duration" => Accepts::Duration,
            "string" if schema["format"] == "date-time" => Accepts::Instant,
            "string" => Accepts::Text { example: example() },
            "integer" => Accepts::Whole { min: schema["minimum"].as_i64(), max: schema["maximum"].as_i64() },
            "boolean" => Accepts::YesNo,
            "array" => {
                let item = self.resolved(&schema["items"]);
                Accepts::List { example: example().or_else(|| item.get("example").map(|item| format!("[{item}]"))) }
            }
            "object" => Accepts::Object { example: example() },
            _ => Accepts::Other,
        }
    }
}

/// The type of a schema, which may also be null.
fn kind(schema: &Value) -> &str {
    let several = schema["type"].as_array().into_iter().flatten().find(|kind| *kind != "null");
    schema["type"].as_str().or_else(|| several?.as_str()).unwrap_or_default()
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    Name(String),
    Index(usize),
}

impl Key {
    fn of(segment: &Segment) -> Option<Self> {
        match segment {
            Segment::Map { key } => Some(Self::Name(key.clone())),
            Segment::Seq { index } => Some(Self::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        }
    }

    fn of_value<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Name(name) => value.get(name),
            Self::Index(index) => value.get(index),
        }
    }
}

/// The path as users write it: `depends_on[0].job`.
fn written(keys: &[Key]) -> String {
    let mut text = String::new();
    for key in keys {
        match key {
            Key::Index(index) => text += &format!("[{index}]"),
            Key::Name(name) if text.is_empty() => text += name,
            Key::Name(name) => text += &format!(".{name}"),
        }
    }
    text
}
