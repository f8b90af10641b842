//! Secrets by name: values that an administrator stores and that jobs refer to. Jobs, runs, audit rows and logs contain the
//! reference; only a delivery to an allowed receiver gets the value. The rules are pure; encryption and storage are
//! elsewhere.
//!
//! | file | rule |
//! |---|---|
//! | `host` | to which hosts a secret may be sent |
//! | `key` | the keys of operators, and new signing keys |
//! | `reference` | `{{ secrets.NAME }}`: finds references in a text and fills them in |
//! | `uses` | where a definition may have references, and whether it may use the secrets that it names |
//! | `forms` | the texts by which a value is recognized in an output |
//! | `scrub` | replaces these texts in a stream |

mod forms;
mod host;
mod key;
mod reference;
mod scrub;
mod uses;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ids::Version,
    invalid::Invalid,
    target::TargetKind,
    time::{DbTime, Span},
};

pub use forms::{Forms, SCRUBBED_BYTES_MIN};
pub use host::{Host, HostPattern};
pub use key::{OPERATOR_KEY_BYTES, OperatorKey, is_signing_key, signing_key};
pub use reference::{Encoding, Piece, fill, may_refer, misspelled, only_reference, pieces};
pub use scrub::{MASK, Scrubber};
pub use uses::{PAYLOAD_FIELD, Place, Text, Use, check_uses, names, uses};

/// Long enough for the names that `secret import-inline` makes: `job.<name>.header.<name>`.
pub const SECRET_NAME_BYTES_MAX: usize = 255;
pub const SECRET_BYTES_MAX: usize = 32 * 1024;
pub const SECRET_DESCRIPTION_BYTES_MAX: usize = 1_024;
pub const SECRET_HOSTS_MAX: usize = 50;
/// References in one definition.
pub const REFERENCES_MAX: usize = 100;
/// Size of a text with the values of its references. A value may be longer than its reference.
pub const FILLED_BYTES_MAX: usize = 1024 * 1024;
/// How many versions of a secret are stored: the current one, and the previous one, with which deliveries are also signed after a
/// rotation.
pub const SECRET_VERSIONS_KEPT: usize = 2;
/// How long deliveries are also signed with the previous key after a rotation.
pub const ROTATION_OVERLAP_DEFAULT: Span = Span::hours(24);
pub const ROTATION_OVERLAP_MAX: Span = Span::days(30);

/// The kinds of jobs that may use a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    Http,
    Shell,
}

impl SecretKind {
    pub const ALL: [Self; 2] = [Self::Http, Self::Shell];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Shell => "shell",
        }
    }

    /// The kind of a target; `None` if its jobs may not use secrets.
    #[must_use]
    pub fn of(kind: TargetKind) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.word() == kind.word())
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Which jobs may use a secret, and to which hosts it may be sent. Does not contain the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretRules {
    pub name: String,
    /// The hosts to which it may be sent.
    pub hosts: Vec<HostPattern>,
    pub kinds: Vec<SecretKind>,
}

impl SecretRules {
    #[must_use]
    pub fn allows_host(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// The first reason why a delivery of this kind to this host may not use the secret.
    pub fn check(&self, kind: SecretKind, host: Option<&Host>) -> Result<(), String> {
        let name = &self.name;
        if !self.kinds.contains(&kind) {
            let kinds = listed(&self.kinds);
            return Err(format!("the secret {name:?} is not for {kind} jobs; its kinds are {kinds}"));
        }
        match host {
            Some(host) if !self.allows_host(host) => {
                let hosts = listed(&self.hosts);
                Err(format!("the secret {name:?} may not be sent to {host}; its hosts are {hosts}"))
            }
            _ => Ok(()),
        }
    }

    /// All errors of a secret to store, by field. The value is checked by [`check_value`].
    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        if let Err(message) = check_secret_name(&self.name) {
            found.push(Invalid::new("name", message));
        }
        if self.hosts.len() > SECRET_HOSTS_MAX {
            let message = format!("has {} patterns; at most {SECRET_HOSTS_MAX} are allowed", self.hosts.len());
            found.push(Invalid::new("hosts", message));
        }
        if self.kinds.is_empty() {
            found.push(Invalid::new("kinds", "is empty; name at least one of http and shell"));
        }
        if self.kinds.contains(&SecretKind::Http) && self.hosts.is_empty() {
            let message =
                "is empty; name the hosts to which http jobs may send the secret, such as [\"api.example.org\"]";
            found.push(Invalid::new("hosts", message));
        }
        found
    }
}

fn listed<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Checks a secret's name. It appears in paths and between braces, so only a few characters are allowed.
pub fn check_secret_name(name: &str) -> Result<(), String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.is_empty()
        && name.len() <= SECRET_NAME_BYTES_MAX
        && name.bytes().all(sound)
        && !name.starts_with(['-', '.'])
    {
        return Ok(());
    }
    Err(format!(
        "{:?} is not a name of a secret; write 1 to {SECRET_NAME_BYTES_MAX} of A-Z a-z 0-9 - _ . and begin with a letter, a \
         digit or _",
        name.chars().take(SECRET_NAME_BYTES_MAX).collect::<String>()
    ))
}

/// Checks a value. Messages never contain it.
pub fn check_value(value: &[u8]) -> Result<(), String> {
    match value.len() {
        0 => Err("is empty; a secret has at least 1 byte".to_owned()),
        bytes if bytes > SECRET_BYTES_MAX => {
            Err(format!("has {bytes} bytes; at most {SECRET_BYTES_MAX} (32 KiB) are allowed"))
        }
        _ => Ok(()),
    }
}

/// A warning about an accepted value.
#[must_use]
pub fn value_warning(value: &[u8]) -> Option<String> {
    if value.len() < SCRUBBED_BYTES_MIN {
        let has = if value.len() == 1 { "1 byte".to_owned() } else { format!("{} bytes", value.len()) };
        return Some(format!(
            "the value has {has}; values under {SCRUBBED_BYTES_MIN} bytes are not removed from outputs"
        ));
    }
    let edge = |byte: &u8| byte.is_ascii_whitespace();
    (value.first().is_some_and(edge) || value.last().is_some_and(edge))
        .then(|| "the value begins or ends with white space, which is part of the secret".to_owned())
}

pub fn check_rotation_overlap(overlap: Span) -> Result<(), String> {
    if overlap <= ROTATION_OVERLAP_MAX {
        return Ok(());
    }
    Err(format!("{overlap} is out of range; it must be 0s to {ROTATION_OVERLAP_MAX}"))
}

/// Whether a secret may be rotated now. Only two versions are kept, so a further rotation would end the older key, which
/// receivers may still use. A rotation with an overlap of 0 is allowed, because its caller wants only the new key to sign.
pub fn check_rotation(previous_until: Option<DbTime>, overlap: Span, now: DbTime) -> Result<(), Invalid> {
    match previous_until.filter(|until| *until > now && !overlap.is_zero()) {
        None => Ok(()),
        Some(until) => {
            let message = format!(
                "the previous key signs until {until}, and a further rotation would end it; wait, or rotate with an overlap of \
                 0s if both keys are compromised"
            );
            Err(Invalid::new("overlap", message))
        }
    }
}

/// The bytes that bind an encrypted version to its installation, tenant, name and version number. A copy under other values
/// cannot be decrypted.
#[must_use]
pub fn associated_data(installation: &str, tenant: i32, name: &str, version: Version) -> Vec<u8> {
    // Each text follows its length, so different values never give the same bytes.
    let mut bytes = b"everytick secret v1".to_vec();
    for text in [installation, name] {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(tenant.to_be_bytes());
    bytes.extend(version.raw().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(hosts: &[&str], kinds: &[SecretKind]) -> SecretRules {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        SecretRules { name: "api".to_owned(), hosts, kinds: kinds.to_vec() }
    }

    #[test]
    fn names_have_letters_digits_dashes_dots_and_underscores() {
        for good in ["a", "A.b-c_9", "_x", "job.nightly.header.authorization", &"x".repeat(SECRET_NAME_BYTES_MAX)] {
            assert_eq!(check_secret_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", ".a", "-a", "é", "a}", "a/b", "{{", &"x".repeat(SECRET_NAME_BYTES_MAX + 1)] {
            assert!(check_secret_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_has_1_byte_to_32_kib() {
        for (bytes, good) in [(0, false), (1, true), (SECRET_BYTES_MAX, true), (SECRET_BYTES_MAX + 1, false)] {
            assert_eq!(check_value(&vec![b'x'; bytes]).is_ok(), good, "{bytes}");
        }
        assert!(value_warning(b"1234567").unwrap().contains("7 bytes"));
        assert!(value_warning(b"12345678\n").unwrap().contains("white space"));
        assert_eq!(value_warning(b"12345678"), None);
    }

    #[test]
    fn a_secret_of_http_jobs_needs_hosts() {
        let fields = |rules: SecretRules| rules.problems().into_iter().map(|found| found.field).collect::<Vec<_>>();
        assert_eq!(fields(rules(&["a.example"], &[SecretKind::Http])), Vec::<String>::new());
        assert_eq!(fields(rules(&[], &[SecretKind::Shell])), Vec::<String>::new());
        assert_eq!(fields(rules(&[], &[SecretKind::Http, SecretKind::Shell])), ["hosts"]);
        assert_eq!(fields(rules(&["a.example"; SECRET_HOSTS_MAX + 1], &[SecretKind::Http])), ["hosts"]);
        assert_eq!(fields(rules(&["a.example"], &[])), ["kinds"]);
        assert_eq!(fields(SecretRules { name: "a b".to_owned(), ..rules(&[], &[SecretKind::Shell]) }), ["name"]);
    }

    #[test]
    fn kind_and_host_decide_who_may_use_a_secret() {
        let http = rules(&["api.example.org"], &[SecretKind::Http]);
        let host = |url: &str| Host::of_url(url).unwrap();
        assert_eq!(http.check(SecretKind::Http, Some(&host("https://api.example.org/x"))), Ok(()));
        let other = http.check(SecretKind::Http, Some(&host("https://evil.example/"))).unwrap_err();
        assert!(other.contains("evil.example:443") && other.contains("api.example.org"), "{other}");
        let shell = http.check(SecretKind::Shell, None).unwrap_err();
        assert!(shell.contains("not for shell jobs") && shell.contains("its kinds are http"), "{shell}");
    }

    #[test]
    fn a_second_rotation_waits_for_the_end_of_the_first_overlap() {
        let at = DbTime::from_millis;
        let check = |until: Option<i64>, overlap: u64| check_rotation(until.map(at), Span::hours(overlap), at(1_000));
        assert_eq!(check(None, 24), Ok(()));
        assert_eq!(check(Some(1_000), 24), Ok(()), "it has ended");
        assert_eq!(check(Some(1_001), 0), Ok(()), "at once");
        assert!(check(Some(1_001), 24).unwrap_err().message.contains("signs until 1970-01-01T00:00:01.001Z"));
    }

    #[test]
    fn different_values_have_different_associated_data() {
        let all_values = [
            ("a", 1, "b", 1),
            ("a", 1, "b", 2),
            ("a", 1, "bc", 1),
            ("a", 2, "b", 1),
            ("ab", 1, "", 1),
            ("", 1, "ab", 1),
        ];
        let all: std::collections::BTreeSet<_> = all_values
            .iter()
            .map(|(installation, tenant, name, version)| {
                associated_data(installation, *tenant, name, Version::from_raw(*version))
            })
            .collect();
        assert_eq!(all.len(), all_values.len());
    }
}
