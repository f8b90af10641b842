//! Sessions of browsers. The cookie holds a random secret; the store has only its hash. The CSRF token, which a page adds
//! to each change, is derived from the secret, so it is not stored either.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Role, Scope};
use crate::time::{DbTime, Span};

/// A session ends after this time without a request.
pub const SESSION_IDLE_MAX: Span = Span::hours(8);
/// A session ends this long after its login.
pub const SESSION_LIFETIME: Span = Span::hours(12);
/// Maximum number of sessions of one user. A further login ends the least recently used session.
pub const SESSIONS_PER_USER_MAX: usize = 20;

const SECRET_BYTES: usize = 32;
const HASH_CONTEXT: &str = "everytick session v1";
const CSRF_CONTEXT: &str = "everytick csrf token v1";

/// The secret of a session. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret([u8; SECRET_BYTES]);

/// The hash under which a session is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionHash([u8; 32]);

impl SessionSecret {
    #[must_use]
    pub const fn from_random(random: [u8; SECRET_BYTES]) -> Self {
        Self(random)
    }

    /// Reads the value of the cookie.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_text =
            text.len() == SECRET_BYTES * 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_text {
            return None;
        }
        let mut bytes = [0; SECRET_BYTES];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The value of the cookie.
    #[must_use]
    pub fn expose(&self) -> String {
        hex(&self.0)
    }

    #[must_use]
    pub fn hash(&self) -> SessionHash {
        SessionHash(blake3::derive_key(HASH_CONTEXT, &self.0))
    }

    /// The token that each change in this session must carry. It does not reveal the secret.
    #[must_use]
    pub fn csrf(&self) -> String {
        hex(&blake3::derive_key(CSRF_CONTEXT, &self.0))
    }

    /// Whether `text` is the CSRF token. The time that the comparison takes reveals nothing about it.
    #[must_use]
    pub fn has_csrf(&self, text: &str) -> bool {
        // Hashes of blake3 compare in constant time.
        blake3::hash(self.csrf().as_bytes()) == blake3::hash(text.as_bytes())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(…)")
    }
}

impl SessionHash {
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SessionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionHash(…)")
    }
}

/// Whether a session is valid at `now`.
#[must_use]
pub fn session_is_live(seen_at: DbTime, expires_at: DbTime, now: DbTime) -> bool {
    expires_at > now && seen_at.plus(SESSION_IDLE_MAX) > now
}

/// What a user may do in one tenant, which is named: the name is looked up when the grant is used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedGrant {
    /// `None` for the role `instance`, which belongs to no tenant.
    pub tenant: Option<String>,
    pub role: Role,
    pub scope: Scope,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_reads_back_from_the_cookie_and_other_texts_are_refused() {
        let secret = SessionSecret::from_random([0xa5; 32]);
        let text = secret.expose();
        assert_eq!(SessionSecret::parse(&text), Some(secret));
        for bad in ["", &text[1..], &format!("{text}0"), &text.to_uppercase(), &text.replace('a', "g"), &"é".repeat(32)]
        {
            assert_eq!(SessionSecret::parse(bad), None, "{bad:?}");
        }
    }

    /// Stored sessions would not be found.
    #[test]
    fn the_golden_hash_never_changes() {
        let hash = hex(SessionSecret::from_random([0; 32]).hash().as_bytes());
        assert_eq!(hash, "8efd444ab55770e04e0a38762530f5a92e3080a7002395793d11f3ce6802daa4");
    }

    #[test]
    fn only_the_csrf_token_of_the_session_is_accepted() {
        let (own, other) = (SessionSecret::from_random([1; 32]), SessionSecret::from_random([2; 32]));
        assert!(own.has_csrf(&own.csrf()));
        for wrong in [other.csrf(), String::new(), own.expose(), own.csrf()[1..].to_owned()] {
            assert!(!own.has_csrf(&wrong), "{wrong}");
        }
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let secret = SessionSecret::from_random([7; 32]);
        assert_eq!(format!("{secret:?} {:?}", secret.hash()), "SessionSecret(…) SessionHash(…)");
    }

    #[test]
    fn a_session_ends_after_8_hours_without_a_request_and_12_hours_after_its_login() {
        let login = DbTime::from_millis(1_000_000);
        let at = |span: Span| login.plus(span);
        let expires = at(SESSION_LIFETIME);
        assert!(session_is_live(login, expires, at(Span::hours(8)).minus(Span::millis(1))));
        assert!(!session_is_live(login, expires, at(Span::hours(8))));
        assert!(session_is_live(at(Span::hours(7)), expires, at(Span::hours(12)).minus(Span::millis(1))));
        assert!(!session_is_live(at(Span::hours(7)), expires, at(Span::hours(12))));
    }
}
