//! Credentials in definitions are write-only: answers show a mask. A client that sends the mask back keeps the stored value,
//! if the definition still sends it to the same receiver.

use std::collections::BTreeMap;

use everytick_domain::invalid::Invalid;

/// Replaces a credential in answers. It is not a valid secret.
pub const MASK: &str = "********";

pub(crate) const NOT_STORED: &str = "is the mask of a credential, but no value is stored for this receiver (its origin and \
                                     method, or its command and workdir); send the value itself";

/// Masks the values of all entries that carry credentials, judged by their names.
pub(crate) fn masked(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |name: &str, value: &str| if is_credential(name) { MASK.to_owned() } else { value.to_owned() };
    values.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect()
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
