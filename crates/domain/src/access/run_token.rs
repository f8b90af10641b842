//! Run tokens. Each delivery has one. With it, the receiver may extend, log and settle the claim of that delivery, and
//! nothing else. A run token is a keyed hash over the claim, so it needs no storage. It is worthless once the fence of the
//! claim is old.

use std::fmt;

use crate::ids::{Fence, RunId, TenantId};

const PREFIX: &str = "etr_";
const TENANT_DIGITS: usize = 8;
const FENCE_DIGITS: usize = 16;
const MAC_DIGITS: usize = 64;
const DIGITS: usize = TENANT_DIGITS + FENCE_DIGITS + MAC_DIGITS;

/// The key of an installation. Any program with this key can settle every claim.
#[derive(Clone, PartialEq, Eq)]
pub struct RunKey([u8; 32]);

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunKey(…)")
    }
}

/// The claim that a run token permits to work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunClaim {
    pub tenant: TenantId,
    pub run: RunId,
    pub fence: Fence,
}

impl RunKey {
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key as text, for the store.
    #[must_use]
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|bytes| Self(*bytes.as_bytes()))
    }

    /// The run token of a claim.
    #[must_use]
    pub fn token(&self, claim: RunClaim) -> String {
        let (tenant, fence) = (claim.tenant.raw(), claim.fence.raw());
        format!("{PREFIX}{tenant:08x}{fence:016x}{}", self.mac(claim).to_hex())
    }

    /// The claim on this run that the token permits to work on; `None` if the token belongs to another run or is invalid.
    #[must_use]
    pub fn check(&self, text: &str, run: RunId) -> Option<RunClaim> {
        let digits = text.strip_prefix(PREFIX)?;
        if digits.len() != DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let (tenant, rest) = digits.split_at(TENANT_DIGITS);
        let (fence, mac) = rest.split_at(FENCE_DIGITS);
        let tenant = TenantId::from_raw(u32::from_str_radix(tenant, 16).ok()?.cast_signed());
        let fence = Fence::from_raw(u64::from_str_radix(fence, 16).ok()?.cast_signed());
        let claim = RunClaim { tenant, run, fence };
        // `blake3::Hash` compares in constant time.
        (blake3::Hash::from_hex(mac).ok()? == self.mac(claim)).then_some(claim)
    }

    fn mac(&self, claim: RunClaim) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&claim.tenant.raw().to_be_bytes()).update(claim.run.uuid().as_bytes());
        hasher.update(&claim.fence.raw().to_be_bytes()).finalize()
    }
}

/// Whether a credential has the form of a run token, valid or not.
#[must_use]
pub fn is_run_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(run: u128, fence: i64) -> RunClaim {
        let run = RunId::from_uuid(uuid::Uuid::from_u128(run));
        RunClaim { tenant: TenantId::DEFAULT, run, fence: Fence::from_raw(fence) }
    }

    #[test]
    fn a_run_token_names_its_claim() {
        let key = RunKey::from_bytes([7; 32]);
        for claim in [claim(1, 1), claim(2, i64::MAX), RunClaim { tenant: TenantId::from_raw(-1), ..claim(3, -5) }] {
            assert_eq!(key.check(&key.token(claim), claim.run), Some(claim));
        }
        assert_eq!(RunKey::from_hex(&key.to_hex()), Some(key));
    }

    #[test]
    fn a_run_token_is_refused_for_other_runs_fences_tenants_and_keys() {
        let key = RunKey::from_bytes([7; 32]);
        let mine = claim(1, 5);
        let text = key.token(mine);
        assert_eq!(key.check(&text, claim(2, 5).run), None, "another run");
        assert_eq!(RunKey::from_bytes([8; 32]).check(&text, mine.run), None, "another key");
        for (at, what) in [(4, "tenant"), (27, "fence"), (40, "mac")] {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(key.check(std::str::from_utf8(&changed).unwrap(), mine.run), None, "another {what}");
        }
        for bad in ["", "etr_", "etk_0", &text[..90], &format!("{text}0"), "etr_é"] {
            assert_eq!(key.check(bad, mine.run), None, "{bad}");
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        assert_eq!(format!("{:?}", RunKey::from_bytes([7; 32])), "RunKey(…)");
    }
}
