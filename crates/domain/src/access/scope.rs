//! Scopes: which queues and jobs of its tenant a credential may access, and whether it may change them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    invalid::Invalid,
    job::{NAME_BYTES_MAX, check_name},
};

/// Maximum number of patterns in one scope.
pub const PATTERNS_MAX: usize = 100;

/// A queue name, or a prefix of queue names with `*` at its end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    is_prefix: bool,
}

impl Pattern {
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.text) } else { name == self.text }
    }

    /// Whether this pattern matches every name that `other` matches.
    #[must_use]
    fn contains(&self, other: &Self) -> bool {
        if self.is_prefix { other.text.starts_with(&self.text) } else { !other.is_prefix && other.text == self.text }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let prefix = text.strip_suffix('*');
        let name = prefix.unwrap_or(&text);
        // The prefix `*` alone matches every queue.
        if !name.is_empty() || prefix.is_none() {
            check_name(name).map_err(|_| {
                format!("{text:?} is not a queue name; write a name such as \"mail\", or a prefix such as \"mail-*\"")
            })?;
        }
        Ok(Self { text: name.to_owned(), is_prefix: prefix.is_some() })
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

/// The limits of a credential within its tenant. The default is no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scope {
    /// The queues whose runs the credential may claim and settle. `None` means all queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<Pattern>>,
    /// The credential may read and change only jobs whose names begin with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_prefix: Option<String>,
    /// The credential may only read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl Scope {
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(queues) = &self.queues
            && !(1..=PATTERNS_MAX).contains(&queues.len())
        {
            let message = format!("{} patterns; write 1 to {PATTERNS_MAX} names or prefixes", queues.len());
            return Err(Invalid::new("queues", message));
        }
        match &self.job_prefix {
            Some(prefix) if check_name(prefix).is_err() => {
                let shown: String = prefix.chars().take(NAME_BYTES_MAX).collect();
                let message = format!("{shown:?} cannot begin a job name; write a prefix such as \"etl-\"");
                Err(Invalid::new("job_prefix", message))
            }
            _ => Ok(()),
        }
    }

    #[must_use]
    pub fn allows_queue(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(queue)))
    }

    #[must_use]
    pub fn allows_every_queue(&self) -> bool {
        self.queues.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches("")))
    }

    #[must_use]
    pub fn allows_job(&self, name: &str) -> bool {
        self.job_prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Whether this scope allows everything that `other` allows.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        let queues = match (&self.queues, &other.queues) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => theirs.iter().all(|their| mine.iter().any(|my| my.contains(their))),
        };
        let jobs = match (&self.job_prefix, &other.job_prefix) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => theirs.starts_with(mine.as_str()),
        };
        queues && jobs && (other.read_only || !self.read_only)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.to_owned().try_into().unwrap()
    }

    fn scope(queues: &[&str]) -> Scope {
        Scope { queues: Some(queues.iter().map(|text| pattern(text)).collect()), ..Scope::default() }
    }

    #[test]
    fn a_pattern_matches_one_name_or_a_prefix() {
        for (text, name, matches) in [
            ("mail", "mail", true),
            ("mail", "mail-2", false),
            ("mail-*", "mail-2", true),
            ("mail-*", "mail", false),
            ("*", "anything", true),
        ] {
            assert_eq!(pattern(text).matches(name), matches, "{text} and {name}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_refused_with_an_example() {
        for text in ["", "a b", "a*b", "**", "ä"] {
            let error = Pattern::try_from(text.to_owned()).unwrap_err();
            assert!(error.contains(&format!("{text:?}")) && error.contains("mail-*"), "{error}");
        }
    }

    #[test]
    fn a_scope_without_queues_or_with_too_many_is_refused() {
        assert_eq!(scope(&[]).check().unwrap_err().field, "queues");
        let many = vec!["a"; PATTERNS_MAX + 1];
        assert_eq!(scope(&many).check().unwrap_err().field, "queues");
        let prefix = Scope { job_prefix: Some("a b".to_owned()), ..Scope::default() };
        assert!(prefix.check().unwrap_err().message.contains("\"a b\""));
    }

    #[test]
    fn only_a_star_or_no_pattern_allows_every_queue() {
        assert!(Scope::default().allows_every_queue() && scope(&["a", "*"]).allows_every_queue());
        assert!(!scope(&["a", "b-*"]).allows_every_queue());
    }

    #[test]
    fn a_stored_scope_reads_back_equal() {
        let all = Scope { job_prefix: Some("etl-".to_owned()), read_only: true, ..scope(&["mail", "etl-*"]) };
        for scope in [Scope::default(), all] {
            let text = serde_json::to_string(&scope).unwrap();
            assert_eq!(serde_json::from_str::<Scope>(&text).unwrap(), scope, "{text}");
        }
    }

    fn any_scope() -> impl Strategy<Value = Scope> {
        let queues = prop::option::of(prop::collection::vec("[ab]{1,3}\\*?", 1..3));
        (queues, prop::option::of("[ab]{1,3}"), any::<bool>()).prop_map(|(queues, job_prefix, read_only)| Scope {
            queues: queues.map(|texts| texts.iter().map(|text| pattern(text)).collect()),
            job_prefix,
            read_only,
        })
    }

    proptest! {
        #[test]
        fn a_contained_scope_allows_nothing_more(wide in any_scope(), narrow in any_scope(), name in "[ab]{1,5}") {
            prop_assume!(wide.contains(&narrow));
            prop_assert!(!narrow.allows_queue(&name) || wide.allows_queue(&name));
            prop_assert!(!narrow.allows_job(&name) || wide.allows_job(&name));
            prop_assert!(narrow.read_only || !wide.read_only);
        }

        #[test]
        fn each_scope_contains_itself(scope in any_scope()) {
            prop_assert!(scope.contains(&scope));
            prop_assert!(Scope::default().contains(&scope));
        }
    }
}
