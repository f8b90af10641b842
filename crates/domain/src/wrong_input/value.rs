//! Values of the wrong type, and names that do not exist, in JSON or in a settings file.

use serde_json::Value;

use super::nearest;

/// Longer values are cut in messages.
const SHOWN_CHARS_MAX: usize = 60;
/// At most this many known names are listed in a message.
const LISTED_MAX: usize = 40;

/// What a field accepts. The example is JSON text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Accepts {
    Text {
        example: Option<String>,
    },
    Duration,
    /// RFC 3339.
    Instant,
    Whole {
        min: Option<i64>,
        max: Option<i64>,
    },
    YesNo,
    List {
        example: Option<String>,
    },
    Object {
        example: Option<String>,
    },
    OneOf(Vec<String>),
    /// The type is not known; the sentence names only the value.
    Other,
}

/// A parsed error of serde. Messages of our own types are kept unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadError<'a> {
    WrongType,
    UnknownField { name: &'a str, known: Vec<&'a str> },
    UnknownWord { word: &'a str, known: Vec<&'a str> },
    Missing { name: &'a str },
    Twice { name: &'a str },
    Own(&'a str),
}

impl<'a> ReadError<'a> {
    #[must_use]
    pub fn of(message: &'a str) -> Self {
        let quoted = |text: &'a str| -> Vec<&'a str> { text.split('`').skip(1).step_by(2).collect() };
        let begins = |start: &str| message.starts_with(start);
        if begins("invalid type: ") || begins("invalid value: ") || begins("invalid length ") {
            return Self::WrongType;
        }
        let mut words = quoted(message).into_iter();
        match words.next() {
            Some(name) if begins("unknown field `") => Self::UnknownField { name, known: words.collect() },
            Some(word) if begins("unknown variant `") => Self::UnknownWord { word, known: words.collect() },
            Some(name) if begins("missing field `") => Self::Missing { name },
            Some(name) if begins("duplicate field `") => Self::Twice { name },
            _ => Self::Own(message),
        }
    }

    /// The field of the error, if it differs from the field at which serde stopped.
    #[must_use]
    pub const fn field(&self) -> Option<&'a str> {
        match self {
            Self::UnknownField { name, .. } | Self::Missing { name } | Self::Twice { name } => Some(name),
            Self::WrongType | Self::UnknownWord { .. } | Self::Own(_) => None,
        }
    }

    /// The sentence. `found` is the value at the field, and `accepts` what the field accepts.
    #[must_use]
    pub fn sentence(&self, found: Option<&Value>, accepts: &Accepts) -> String {
        match self {
            Self::WrongType => wrong_value(found.unwrap_or(&Value::Null), accepts),
            Self::UnknownField { name, known } => match nearest(&cut(name), known.iter().copied()) {
                Some(meant) => format!("{:?} is not a field; did you mean {meant:?}?", cut(name)),
                None => format!("{:?} is not a field; write one of {}", cut(name), listed(known)),
            },
            Self::UnknownWord { word, known } => {
                let meant = nearest(&cut(word), known.iter().copied());
                let meant = meant.map(|meant| format!("did you mean {meant:?}? ")).unwrap_or_default();
                let write = if meant.is_empty() { "write" } else { "Write" };
                format!("{:?} is not one of the values; {meant}{write} one of {}", cut(word), listed(known))
            }
            Self::Missing { .. } => format!("is missing; {}", accepts.remedy()),
            Self::Twice { .. } => "occurs twice; remove one of them".to_owned(),
            Self::Own(message) => (*message).to_owned(),
        }
    }
}

fn listed(known: &[&str]) -> String {
    known.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ")
}

/// The sentence for a value that the field does not accept.
#[must_use]
pub fn wrong_value(found: &Value, accepts: &Accepts) -> String {
    let shown = shown(found);
    match (accepts, found) {
        (Accepts::Duration, Value::Number(number)) if number.is_u64() => {
            format!("{shown} has no unit; write a duration in quotes, such as \"{number}s\" or \"{number}m\"")
        }
        (Accepts::Text { .. }, Value::Number(_) | Value::Bool(_)) => {
            format!("{shown} is not a text; write it in quotes: \"{shown}\"")
        }
        (Accepts::Whole { .. }, Value::String(text)) if text.trim().parse::<i64>().is_ok() => {
            format!("{shown} is a text; write the number without quotes: {}", text.trim())
        }
        (Accepts::YesNo, Value::String(text)) if matches!(text.as_str(), "true" | "false") => {
            format!("{shown} is a text; write {text} without quotes")
        }
        (Accepts::List { .. }, Value::Array(items)) => match items.iter().find(|item| !item.is_string()) {
            Some(item) => format!("{} in the list is not a text; {}", self::shown(item), accepts.remedy()),
            None => format!("a value of the list is not accepted; {}", accepts.remedy()),
        },
        (Accepts::List { example: None }, Value::String(_)) => format!("{shown} is not a list; write [{shown}]"),
        _ => format!("{shown} is not {}; {}", accepts.name(), accepts.remedy()),
    }
}

impl Accepts {
    fn name(&self) -> &'static str {
        match self {
            Self::Text { .. } => "a text",
            Self::Duration => "a duration",
            Self::Instant => "a time",
            Self::Whole { .. } => "a whole number",
            Self::YesNo => "true or false",
            Self::List { .. } => "a list",
            Self::Object { .. } => "an object",
            Self::OneOf(_) => "one of the values",
            Self::Other => "accepted here",
        }
    }

    fn remedy(&self) -> String {
        let such_as =
            |example: &Option<String>| example.as_ref().map(|text| format!(" such as {text}")).unwrap_or_default();
        match self {
            Self::Text { example } => format!("write a text in quotes{}", such_as(example)),
            Self::Duration => "write it like \"90s\", \"15m\", \"1h30m\" or \"7d\"".to_owned(),
            Self::Instant => "write RFC 3339, such as \"2026-11-16T07:00:00Z\"".to_owned(),
            Self::Whole { min: Some(min), max: Some(max) } => format!("write a number from {min} to {max}"),
            Self::Whole { min: Some(min), max: None } => format!("write a number from {min} on"),
            Self::Whole { min: None, max } => {
                format!("write a number{}", max.map(|max| format!(" up to {max}")).unwrap_or_default())
            }
            Self::YesNo => "write true or false".to_owned(),
            Self::List { example } => format!("write a list{}", such_as(example)),
            Self::Object { example } => format!("write an object{}", such_as(example)),
            Self::OneOf(words) => format!("write one of {}", words.join(", ")),
            Self::Other => "see the reference at /docs".to_owned(),
        }
    }
}

/// The value as JSON, cut if it is long. A list or an object is only named: it may be large.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("{:?}", cut(text)),
        Value::Bool(_) | Value::Number(_) => cut(&value.to_string()),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS_MAX).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are tested")]
    struct Job {
        name: String,
        #[serde(default)]
        priority: u8,
        #[serde(default)]
        overlap: Overlap,
        #[serde(default)]
        after: Vec<String>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Overlap {
        #[default]
        Skip,
        Allow,
    }

    #[test]
    fn messages_of_serde_become_sentences_without_its_words() {
        let number = Accepts::Whole { min: Some(0), max: Some(9) };
        let name = Accepts::Text { example: Some("\"nightly\"".into()) };
        let list = Accepts::List { example: None };
        for (job, found, accepts, field, sentence) in [
            (json!({}), json!(null), &name, Some("name"), "is missing; write a text in quotes such as \"nightly\""),
            (json!({"name": 5}), json!(5), &name, None, "5 is not a text; write it in quotes: \"5\""),
            (
                json!({"name": [1]}),
                json!([1]),
                &name,
                None,
                "a list is not a text; write a text in quotes such as \"nightly\"",
            ),
            (
                json!({"name": "a", "priority": "high"}),
                json!("high"),
                &number,
                None,
                "\"high\" is not a whole number; write a number from 0 to 9",
            ),
            (
                json!({"name": "a", "priority": "3"}),
                json!("3"),
                &number,
                None,
                "\"3\" is a text; write the number without quotes: 3",
            ),
            (
                json!({"name": "a", "priority": 300}),
                json!(300),
                &number,
                None,
                "300 is not a whole number; write a number from 0 to 9",
            ),
            (json!({"name": "a", "after": "b"}), json!("b"), &list, None, "\"b\" is not a list; write [\"b\"]"),
            (
                json!({"name": "a", "priorty": 1}),
                json!(1),
                &number,
                Some("priorty"),
                "\"priorty\" is not a field; did you mean \"priority\"?",
            ),
            (
                json!({"name": "a", "zzz": 1}),
                json!(1),
                &number,
                Some("zzz"),
                "\"zzz\" is not a field; write one of name, priority, overlap, after",
            ),
            (
                json!({"name": "a", "overlap": "never"}),
                json!("never"),
                &Accepts::Other,
                None,
                "\"never\" is not one of the values; write one of skip, allow",
            ),
        ] {
            let message = serde_json::from_str::<Job>(&job.to_string()).unwrap_err().to_string();
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
            let error = ReadError::of(message);
            assert_eq!((error.field(), error.sentence(Some(&found), accepts).as_str()), (field, sentence), "{message}");
        }
        let twice = serde_json::from_str::<Job>(r#"{"name": "a", "name": "b"}"#).unwrap_err().to_string();
        assert_eq!(ReadError::of(&twice).sentence(None, &name), "occurs twice; remove one of them");
        assert_eq!(ReadError::of("\"x\" is not a rate").sentence(None, &name), "\"x\" is not a rate");
    }

    #[test]
    fn a_number_where_a_duration_belongs_is_shown_with_a_unit() {
        for (found, sentence) in [
            (json!(30), "30 has no unit; write a duration in quotes, such as \"30s\" or \"30m\""),
            (json!(true), "true is not a duration; write it like \"90s\", \"15m\", \"1h30m\" or \"7d\""),
            (json!(-5), "-5 is not a duration; write it like \"90s\", \"15m\", \"1h30m\" or \"7d\""),
        ] {
            assert_eq!(wrong_value(&found, &Accepts::Duration), sentence);
        }
        let long = wrong_value(&json!("x".repeat(10_000)), &Accepts::YesNo);
        assert!(long.len() < 150 && long.ends_with("write true or false"), "{long}");
    }
}
