//! Two kinds of keys: the key of an operator, which encrypts the data keys, and the signing keys that a rotation makes.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

const KEY_PREFIX: &str = "etkey1:";
pub const OPERATOR_KEY_BYTES: usize = 32;
const ID_CONTEXT: &str = "everytick operator key id v1";
/// Bytes of an id: enough to distinguish the keys of one installation.
const ID_BYTES: usize = 8;
const SIGNING_PREFIX: &str = "whsec_";

/// A key that encrypts the data keys of secrets. It is in a file of the operator, never in the database.
#[derive(Clone)]
pub struct OperatorKey(Zeroizing<[u8; OPERATOR_KEY_BYTES]>);

impl OperatorKey {
    #[must_use]
    pub fn from_random(random: [u8; OPERATOR_KEY_BYTES]) -> Self {
        Self(Zeroizing::new(random))
    }

    /// Reads the text of a key file. Messages never contain it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "is not a key; a key file has one line with \"{KEY_PREFIX}\" and {OPERATOR_KEY_BYTES} bytes in base64, as \
                 `everytick secret keygen` writes it"
            )
        };
        let base64 = text.trim().strip_prefix(KEY_PREFIX).ok_or_else(wrong)?;
        let bytes = Zeroizing::new(STANDARD.decode(base64).map_err(|_| wrong())?);
        let key = <[u8; OPERATOR_KEY_BYTES]>::try_from(bytes.as_slice()).map_err(|_| wrong())?;
        Ok(Self::from_random(key))
    }

    /// The line of a key file.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{KEY_PREFIX}{}", STANDARD.encode(self.0.as_slice())))
    }

    /// Names the key in the database and in messages. The key cannot be computed from it.
    #[must_use]
    pub fn id(&self) -> String {
        let hash = blake3::derive_key(ID_CONTEXT, self.0.as_slice());
        hash.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8; OPERATOR_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for OperatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorKey({})", self.id())
    }
}

/// A new signing key, in the form of Standard Webhooks.
#[must_use]
pub fn signing_key(random: &[u8; 32]) -> Zeroizing<String> {
    Zeroizing::new(format!("{SIGNING_PREFIX}{}", STANDARD.encode(random)))
}

/// Whether a value is a signing key. A rotation replaces no other value, because the receiver would not know the random new value.
#[must_use]
pub fn is_signing_key(value: &[u8]) -> bool {
    value.starts_with(SIGNING_PREFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_read_as_it_was_written() {
        let key = OperatorKey::from_random([7; 32]);
        let text = key.text();
        assert_eq!(text.as_str(), "etkey1:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
        for text in [text.as_str(), &format!("{}\n", text.as_str())] {
            assert_eq!(OperatorKey::parse(text).unwrap().bytes(), key.bytes());
        }
        assert_eq!(key.id(), OperatorKey::parse(&text).unwrap().id());
        assert_ne!(key.id(), OperatorKey::from_random([8; 32]).id());
        assert_eq!(key.id().len(), 2 * ID_BYTES);
    }

    #[test]
    fn anything_else_is_refused_without_being_repeated() {
        for text in ["", "etkey1:", "etkey1:hunter2!", "hunter2", "etkey2:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="]
        {
            let message = OperatorKey::parse(text).unwrap_err();
            assert!(message.contains("keygen") && !message.contains("hunter2"), "{message}");
        }
        assert!(!format!("{:?}", OperatorKey::from_random([7; 32])).contains("BwcH"));
    }

    #[test]
    fn a_new_signing_key_is_one() {
        assert!(is_signing_key(signing_key(&[1; 32]).as_bytes()));
        assert!(!is_signing_key(b"hunter2"));
    }
}
