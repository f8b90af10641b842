//! Errors in the syntax of JSON.

/// What serde_json writes, and what the user can do about it. Longer texts first: some begin with a shorter one.
const SENTENCES: [(&str, &str); 17] = [
    ("EOF while parsing a list", "the text ends inside a list; add the missing ]"),
    ("EOF while parsing an object", "the text ends inside an object; add the missing }"),
    ("EOF while parsing a string", "the text ends inside a string; add the closing quote"),
    ("EOF while parsing a value", "the text ends where a value must follow; add the value"),
    ("expected `:`", "a field has no value; write \"name\": value"),
    ("expected `,` or `]`", "the items of a list are not separated; add a comma between them, or a ] at the end"),
    ("expected `,` or `}`", "the fields of an object are not separated; add a comma between them, or a } at the end"),
    ("key must be a string", "a field has no quotes; write its name in double quotes"),
    ("trailing comma", "a comma has no item after it; remove the comma"),
    ("trailing characters", "more text follows the end of the JSON; remove it"),
    ("invalid escape", "a string has an unknown escape; write \\\\ for a backslash"),
    ("control character", "a string contains a line break or another control character; write \\n for a line break"),
    ("invalid number", "a number is not written as JSON; write it like 1, -1 or 1.5"),
    ("number out of range", "a number is too large; write a smaller one, or a string"),
    ("recursion limit exceeded", "the JSON is nested too deeply; use fewer levels"),
    ("expected ident", VALUES),
    ("expected value", VALUES),
];

const VALUES: &str =
    "this is no value; write a string in double quotes, a number, true, false, null, a [list] or an {object}";

/// The sentence for the message of a syntax error of serde_json: where the error is, and what would be right.
#[must_use]
pub fn json_syntax(message: &str) -> String {
    let (what, position) = message.rsplit_once(" at line ").unwrap_or((message, ""));
    let position = match position.split_once(" column ") {
        Some((line, column)) => format!("line {line}, column {column}: "),
        None => String::new(),
    };
    let sentence =
        SENTENCES.iter().find(|(known, _)| what.starts_with(known)).map_or(VALUES, |(_, sentence)| *sentence);
    format!("{position}{sentence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syntax_error_has_its_position_and_a_remedy() {
        for (text, expected) in [
            ("{\"a\": [1", "line 1, column 8: the text ends inside a list"),
            ("{\"a\": 1", "line 1, column 7: the text ends inside an object"),
            ("\"a", "the text ends inside a string"),
            ("", "the text ends where a value must follow"),
            ("{\"a\" 1}", "write \"name\": value"),
            ("[1 2]", "add a comma between them"),
            ("{\"a\": 1 \"b\": 2}", "add a comma between them"),
            ("{a: 1}", "write its name in double quotes"),
            ("{'a': 1}", "write its name in double quotes"),
            ("[1,]", "remove the comma"),
            ("{\"a\": 1,}", "remove the comma"),
            ("{} x", "more text follows"),
            ("\"\\x\"", "unknown escape"),
            ("\"a\nb\"", "line 2, column 0: a string contains a line break"),
            ("01", "a number is not written as JSON"),
            ("1e999", "a number is too large"),
            ("nope", "this is no value"),
            ("yes", "this is no value"),
            ("'a'", "this is no value"),
            ("\"\\ud800\"", "line 1"),
        ] {
            let message = serde_json::from_str::<serde_json::Value>(text).unwrap_err().to_string();
            let sentence = json_syntax(&message);
            assert!(sentence.contains(expected), "{text:?}: {message}: {sentence}");
            assert!(!sentence.contains("EOF") && !sentence.contains("expected"), "{sentence}");
        }
    }
}
