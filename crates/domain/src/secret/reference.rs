//! References to secrets in a text: `{{ secrets.NAME }}`. Blanks around the words are optional. Any other text in braces
//! stays unchanged, so that texts of other template languages pass through.

use super::{FILLED_BYTES_MAX, SECRET_NAME_BYTES_MAX, check_secret_name};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const PREFIX: &str = "secrets.";

/// A part of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    Text(&'a str),
    /// A reference to the secret of this name.
    Secret(&'a str),
}

/// How a value is written into a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Unchanged, in a header or an environment variable.
    Plain,
    /// With percent signs, in the query of a URL.
    Percent,
    /// Inside a string of a JSON text.
    Json,
}

/// Whether a text may have a reference. Most texts have no braces, so this is fast.
#[must_use]
pub fn may_refer(text: &str) -> bool {
    text.contains(OPEN) && text.contains(PREFIX)
}

/// Splits a text at its references. A part that begins like a reference but is not valid is an error, because it would be
/// sent unchanged.
pub fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut begin, mut at) = (Vec::new(), 0, 0);
    while let Some(open) = text[at..].find(OPEN).map(|found| at + found) {
        let inside = &text[open + OPEN.len()..];
        let word = inside.trim_start_matches([' ', '\t']);
        let Some(name) = word.strip_prefix(PREFIX) else {
            at = open + 1; // the next brace may open a reference
            continue;
        };
        let close = name
            .find(CLOSE)
            .ok_or_else(|| format!("{:?} has no closing braces; write {{{{ secrets.NAME }}}}", shown(&text[open..])))?;
        let name = name[..close].trim_end_matches([' ', '\t']);
        check_secret_name(name)
            .map_err(|_| format!("{:?} names no secret; write {{{{ secrets.NAME }}}}", shown(&text[open..])))?;
        if open > begin {
            pieces.push(Piece::Text(&text[begin..open]));
        }
        pieces.push(Piece::Secret(name));
        begin = open + OPEN.len() + (inside.len() - word.len()) + PREFIX.len() + close + CLOSE.len();
        at = begin;
    }
    if begin < text.len() {
        pieces.push(Piece::Text(&text[begin..]));
    }
    Ok(pieces)
}

/// The first text in braces that is probably meant as a reference, but is not one: `{{ secret.api }}`, `{{ Secrets.api }}`.
#[must_use]
pub fn misspelled(text: &str) -> Option<String> {
    let opened = text.match_indices(OPEN).map(|(at, _)| &text[at..]);
    opened.filter_map(|from| Some(&from[..from.find(CLOSE)? + CLOSE.len()])).find_map(|reference| {
        let word = reference.trim_start_matches(OPEN).trim_start();
        let (prefix, name) = word.split_once('.')?;
        let is_meant = ["secret", "secrets"].contains(&prefix.trim_end().to_ascii_lowercase().as_str());
        let name = name.trim_end_matches(CLOSE).trim();
        let is_wrong = !word.starts_with(PREFIX) && is_meant && check_secret_name(name).is_ok();
        is_wrong.then(|| format!("{:?} is not a reference; write {{{{ secrets.{name} }}}}", shown(reference)))
    })
}

/// The beginning of a text, for messages.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = SECRET_NAME_BYTES_MAX;
    text.chars().take(CHARS_MAX).collect()
}

/// The name, if the text is one reference and nothing else.
#[must_use]
pub fn only_reference(text: &str) -> Option<&str> {
    match pieces(text).ok()?.as_slice() {
        [Piece::Secret(name)] => Some(name),
        _ => None,
    }
}

/// Writes a text with the values of its references to `to`. A reference for which `value` returns
/// `Ok(None)` stays unchanged.
pub fn fill<'v, E: From<String>>(
    text: &str,
    encoding: Encoding,
    to: &mut Vec<u8>,
    mut value: impl FnMut(&str) -> Result<Option<&'v [u8]>, E>,
) -> Result<(), E> {
    for piece in pieces(text)? {
        match piece {
            Piece::Text(text) => to.extend(text.as_bytes()),
            Piece::Secret(name) => match value(name)? {
                Some(value) => encode(name, value, encoding, to)?,
                None => {
                    for part in [OPEN, " ", PREFIX, name, " ", CLOSE] {
                        to.extend(part.as_bytes());
                    }
                }
            },
        }
        if to.len() > FILLED_BYTES_MAX {
            return Err(too_long().into());
        }
    }
    Ok(())
}

fn too_long() -> String {
    format!("the text with the values of its secrets is too long; at most {FILLED_BYTES_MAX} bytes (1 MiB) are allowed")
}

fn encode(name: &str, value: &[u8], encoding: Encoding, to: &mut Vec<u8>) -> Result<(), String> {
    match encoding {
        Encoding::Plain => to.extend(value),
        Encoding::Percent => percent(value, to),
        Encoding::Json => {
            let text = std::str::from_utf8(value).map_err(|_| {
                format!("the secret {name:?} is not UTF-8 text, so it cannot be part of a JSON payload")
            })?;
            let quoted = serde_json::to_vec(text).map_err(|error| error.to_string())?;
            to.extend(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
        }
    }
    Ok(())
}

/// Keeps only the unreserved characters of RFC 3986.
pub(super) fn percent(value: &[u8], to: &mut Vec<u8>) {
    for byte in value {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            to.push(*byte);
        } else {
            to.extend(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_probably_meant_as_a_reference_is_found() {
        for text in ["{{ secret.api }}", "a {{secret.api}} b", "{{ SECRETS.api }}", "{{ x }} {{\tSecret.api }}"] {
            let why = misspelled(text).unwrap_or_else(|| panic!("{text}"));
            assert!(why.contains("write {{ secrets.api }}"), "{why}");
        }
        for text in [
            "{{ secrets.api }}",
            "{{ secretary.name }}",
            "{{ secret }}",
            "secret.api",
            "{{ secret.api",
            "{{ .secret.a b }}",
        ] {
            assert_eq!(misspelled(text), None, "{text}");
        }
    }

    fn filled(text: &str, encoding: Encoding, value: &[u8]) -> Result<String, String> {
        let mut to = Vec::new();
        fill(text, encoding, &mut to, |name| match name {
            "missing" => Err("missing".to_owned()),
            "kept" => Ok(None),
            _ => Ok(Some(value)),
        })?;
        Ok(String::from_utf8_lossy(&to).into_owned())
    }

    #[test]
    fn references_are_found_in_every_spelling() {
        use Piece::{Secret, Text};
        for (text, expected) in [
            ("", vec![]),
            ("plain", vec![Text("plain")]),
            ("{{ secrets.a }}", vec![Secret("a")]),
            ("{{secrets.a}}", vec![Secret("a")]),
            ("{{ \tsecrets.a.b-c_1\t }}x", vec![Secret("a.b-c_1"), Text("x")]),
            ("Bearer {{ secrets.a }}", vec![Text("Bearer "), Secret("a")]),
            ("{{ secrets.a }}{{ secrets.b }}", vec![Secret("a"), Secret("b")]),
            ("{{{ secrets.a }}}", vec![Text("{"), Secret("a"), Text("}")]),
            ("{{ flow }} {{ secrets.a }}", vec![Text("{{ flow }} "), Secret("a")]),
            ("{{ parents.p.output }}", vec![Text("{{ parents.p.output }}")]),
            ("{{ \u{e9} {{ secrets.a }}", vec![Text("{{ \u{e9} "), Secret("a")]),
            ("{{", vec![Text("{{")]),
            ("{ { secrets.a }}", vec![Text("{ { secrets.a }}")]),
            ("{{ secret.a }}", vec![Text("{{ secret.a }}")]),
        ] {
            assert_eq!(pieces(text), Ok(expected), "{text:?}");
            assert_eq!(may_refer(text), text.contains("secrets.") && text.contains("{{"));
        }
    }

    #[test]
    fn a_reference_that_is_wrong_is_refused() {
        for text in ["{{ secrets.a", "{{ secrets.}}", "{{ secrets.a b }}", "{{ secrets.a }", "{{ secrets.\u{e9} }}"] {
            let error = pieces(text).unwrap_err();
            assert!(error.contains("write {{ secrets.NAME }}"), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_encoded_for_the_text_around_them() {
        let value = "a b&\"\n\u{e9}";
        assert_eq!(filled("x{{ secrets.s }}y", Encoding::Plain, value.as_bytes()).unwrap(), format!("x{value}y"));
        assert_eq!(filled("q={{ secrets.s }}", Encoding::Percent, value.as_bytes()).unwrap(), "q=a%20b%26%22%0A%C3%A9");
        let json = filled(r#"{"a":1.0,"b":"{{ secrets.s }}"}"#, Encoding::Json, value.as_bytes()).unwrap();
        assert_eq!(json, "{\"a\":1.0,\"b\":\"a b&\\\"\\n\u{e9}\"}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["b"], value);
        assert!(filled("{{ secrets.s }}", Encoding::Json, b"\xff").unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn a_reference_without_a_value_is_an_error_or_stays() {
        assert_eq!(filled("{{ secrets.missing }}", Encoding::Plain, b"v"), Err("missing".to_owned()));
        assert_eq!(filled("{{secrets.kept}}", Encoding::Plain, b"v").unwrap(), "{{ secrets.kept }}");
        assert_eq!(filled("{{ flow }}", Encoding::Plain, b"v").unwrap(), "{{ flow }}");
    }

    #[test]
    fn a_value_that_looks_like_a_reference_is_not_filled_again() {
        assert_eq!(filled("{{ secrets.s }}", Encoding::Plain, b"{{ secrets.t }}").unwrap(), "{{ secrets.t }}");
    }

    #[test]
    fn a_filled_text_is_bounded() {
        let (value, text) = (vec![b'x'; 32 * 1024], "{{ secrets.s }}".repeat(33));
        assert!(filled(&text, Encoding::Plain, &value).unwrap_err().contains("at most 1048576 bytes"));
        assert!(filled(&text[..32 * 15], Encoding::Plain, &value).is_ok());
    }

    #[test]
    fn a_text_that_is_one_reference_is_recognized() {
        assert_eq!(only_reference("{{ secrets.a }}"), Some("a"));
        for other in ["", "a", " {{ secrets.a }}", "{{ secrets.a }}{{ secrets.b }}", "{{ secrets.a"] {
            assert_eq!(only_reference(other), None, "{other}");
        }
    }
}
