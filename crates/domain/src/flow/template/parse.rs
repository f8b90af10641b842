//! Finds the placeholders in the strings of a payload and parses them.

use serde_json::Value;

/// A parsed placeholder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Placeholder {
    Flow,
    Run {
        parent: String,
    },
    Error {
        parent: String,
    },
    Output {
        parent: String,
        path: Vec<String>,
    },
    /// A reference to a secret, which the delivery fills in.
    Secret {
        name: String,
    },
}

/// A piece of a string.
pub(super) enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

pub(super) fn each_string(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| each_string(item, each)),
        Value::Object(fields) => fields.values().for_each(|field| each_string(field, each)),
    }
}

pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
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
pub(super) fn read(placeholder: &str, known: &[&str]) -> Result<Placeholder, String> {
    let inside = placeholder.trim();
    let wrong = |why: &str| {
        let right =
            "write {{ parents.NAME.output.field }}, {{ parents.NAME.error }}, {{ parents.NAME.run }} or {{ flow }}";
        Err(format!("{{{{ {} }}}} {why}; {right}", shown(inside)))
    };
    if inside == "flow" {
        return Ok(Placeholder::Flow);
    }
    if let Some(name) = inside.strip_prefix("secrets.") {
        return Ok(Placeholder::Secret { name: name.to_owned() });
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

pub(super) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 100;
    text.chars().take(SHOWN_MAX).collect()
}
