//! Texts that list all kinds: for the reference page, help texts and error messages.

use everytick_domain::target::{TargetKind, TargetSpec};

use crate::{KINDS, examples};

/// The table of targets on the reference page, in Markdown. A test compares it with `docs/reference/jobs.md`.
#[must_use]
pub fn reference_table() -> String {
    let mut table =
        "| kind | example | default `timeout` | default `max_retries` | fields |\n|---|---|---|---|---|\n".to_owned();
    for (info, spec) in KINDS.iter().zip(examples()) {
        let (kind, example) = (info.kind.word(), info.example);
        let (timeout, retries) = (limited_timeout(&spec), spec.retry_default().max_retries);
        table += &format!("| `{kind}` | `{{\"{kind}\": {example}}}` | {timeout} | {retries} | {} |\n", info.reference);
    }
    table
}

fn limited_timeout(spec: &TargetSpec) -> String {
    let default = spec.timeout_default();
    match spec.timeout_max() {
        Some(max) => format!("{default}; at most {max}"),
        None => default.to_string(),
    }
}

/// A value that depends on the kind, for all kinds: `30s for http, 1h for shell and queue`.
#[must_use]
pub fn by_kind(value: impl Fn(&TargetSpec) -> String) -> String {
    grouped(examples().iter().map(|spec| (value(spec), spec.kind())))
}

fn grouped<'a>(values: impl Iterator<Item = (String, &'a str)>) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (value, kind) in values {
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, kinds)) => kinds.push(kind),
            None => groups.push((value, vec![kind])),
        }
    }
    let groups: Vec<String> = groups.iter().map(|(value, kinds)| format!("{value} for {}", joined(kinds))).collect();
    groups.join(", ")
}

/// All kinds in a sentence, each in the form that `shown` gives it: `http, shell and queue`.
#[must_use]
pub fn listed(shown: impl Fn(&str) -> String) -> String {
    joined(&TargetKind::ALL.iter().map(|kind| shown(kind.word())).collect::<Vec<_>>())
}

fn joined<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    #[test]
    fn every_kind_has_a_valid_example_in_the_order_of_the_registry() {
        let examples = examples();
        assert_eq!(examples.iter().map(TargetKind::of).collect::<Vec<_>>(), TargetKind::ALL);
        assert_eq!(KINDS.iter().map(|info| info.kind).collect::<Vec<_>>(), TargetKind::ALL);
        for spec in examples {
            assert_eq!(validate(&spec), [], "{spec:?}");
        }
    }

    #[test]
    fn every_kind_has_a_summary_and_a_flag_that_chooses_it() {
        for info in KINDS {
            let shown = serde_json::from_str(info.example).unwrap();
            assert!((info.summary)(&shown).is_some_and(|line| !line.is_empty()), "{}", info.kind.word());
            assert!(info.flags.iter().any(|flag| flag.chooses), "{}", info.kind.word());
        }
    }

    #[test]
    fn values_by_kind_are_grouped() {
        let values = [("30s", "a"), ("1h", "b"), ("30s", "c"), ("1h", "d"), ("1h", "e")];
        let values = values.map(|(value, kind)| (value.to_owned(), kind));
        assert_eq!(grouped(values.into_iter()), "30s for a and c, 1h for b, d and e");
        assert!(by_kind(|spec| spec.timeout_default().to_string()).starts_with("30s for http"));
        assert!(listed(str::to_owned).starts_with("http, shell"));
        assert_eq!(joined(&["a"]), "a");
        assert_eq!(joined(&["a", "b", "c"]), "a, b and c");
    }
}
