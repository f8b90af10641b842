//! Credentials in definitions are write-only: answers show a mask. A client that sends the mask back keeps the stored value,
//! if the definition still sends it to the same receiver.

use std::collections::BTreeMap;

use everytick_domain::{
    invalid::Invalid,
    secret::{Piece, SCRUBBED_BYTES_MIN, may_refer, pieces},
};

/// Replaces a credential in answers. It is not a valid secret.
pub const MASK: &str = "********";

pub(crate) const NOT_STORED: &str = "is the mask of a credential, but no value is stored for this receiver (its origin and \
                                     method, or its command and workdir); send the value itself";

/// Masks the values of all entries that carry credentials, judged by their names.
pub(crate) fn masked(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let entry = |name: &str, value: &str| if is_credential(name) { shown(value) } else { value.to_owned() };
    values.iter().map(|(name, value)| (name.clone(), entry(name, value))).collect()
}

/// A credential as answers show it: a reference to a secret as it is, and a value masked. Beside a reference, a word such as
/// `Bearer` is shown too; a longer text may be a credential itself.
pub(crate) fn shown(value: &str) -> String {
    let is_word = |text: &str| text.trim().len() < SCRUBBED_BYTES_MIN;
    let pieces = if may_refer(value) { pieces(value).unwrap_or_default() } else { Vec::new() };
    let refers = pieces.iter().any(|piece| matches!(piece, Piece::Secret(_)));
    let plain = pieces.iter().all(|piece| match piece {
        Piece::Secret(_) => true,
        Piece::Text(text) => is_word(text),
    });
    if refers && plain { value.to_owned() } else { MASK.to_owned() }
}

/// Calls `each` with the entries that contain a credential as a value, instead of a reference to a secret.
pub(crate) fn each_inline(field: &str, values: &mut BTreeMap<String, String>, each: &mut dyn FnMut(&str, &mut String)) {
    for (name, value) in values.iter_mut().filter(|(name, value)| is_inline(name, value)) {
        each(&format!("{field}.{name}"), value);
    }
}

fn is_inline(name: &str, value: &str) -> bool {
    is_credential(name) && !value.is_empty() && shown(value) == MASK
}

/// Whether a header or variable carries a credential, judged by its name.
fn is_credential(name: &str) -> bool {
    const PARTS: [&str; 10] =
        ["auth", "cookie", "credential", "key", "pass", "pwd", "secret", "session", "sign", "token"];
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

/// Replaces each mask by the stored value. `missing` is the error for a mask without a stored value.
pub(crate) fn unmask_all(
    field: &str,
    given: BTreeMap<String, String>,
    old: Option<&BTreeMap<String, String>>,
    missing: &str,
    errors: &mut Vec<Invalid>,
) -> Option<BTreeMap<String, String>> {
    let unmasked = given.into_iter().map(|(name, value)| {
        if value != MASK {
            return Some((name, value));
        }
        let stored = old.and_then(|old| old.get(&name)).cloned();
        if stored.is_none() {
            errors.push(Invalid::new(format!("{field}.{name}"), missing));
        }
        stored.map(|stored| (name, stored))
    });
    unmasked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_shown_and_a_value_is_masked() {
        for value in ["{{ secrets.api }}", "Bearer {{secrets.api}}", "{{ secrets.user }}:{{ secrets.password }}"] {
            assert_eq!(shown(value), value);
        }
        for value in ["hunter2", "", "Bearer hunter2-hunter2 {{ secrets.api }}", "{{ secrets.a b }}", "{{ other }}"] {
            assert_eq!(shown(value), MASK, "{value}");
        }
        assert!(is_inline("Authorization", "hunter2") && !is_inline("accept", "hunter2"));
        assert!(!is_inline("authorization", "Bearer {{ secrets.api }}"));
    }
}
