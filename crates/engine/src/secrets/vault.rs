//! Encrypts and decrypts the values of secrets. Each version has a random data key, which encrypts the value; an operator key
//! encrypts the data key. Both are bound to installation, tenant, name and version, so a copy in another place cannot be
//! decrypted. AES-256-GCM everywhere.

use std::{fmt, sync::Arc};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use everytick_domain::secret::{OPERATOR_KEY_BYTES, OperatorKey, associated_data};
use everytick_store::{KeyMark, KeyRecord, Rewrap, SealedValue, ValuePlace};
use zeroize::Zeroizing;

use crate::commands::Entropy;

/// The text that a check value encrypts.
const CHECK_TEXT: &[u8] = b"everytick operator key";
/// These texts distinguish the ciphertexts of one place.
const VALUE: &[u8] = b"value ";
const DATA_KEY: &[u8] = b"data key ";
const CHECK: &[u8] = b"check ";

/// The operator keys of this process.
#[derive(Clone)]
pub struct Vault {
    installation: Arc<str>,
    /// Encrypts.
    first: OperatorKey,
    /// Decrypt too.
    others: Arc<[OperatorKey]>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("first", &self.first).field("others", &self.others).finish_non_exhaustive()
    }
}

/// Why a value cannot be decrypted. Never contains the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sealed {
    /// No key file has this key.
    UnknownKey(String),
    /// The stored bytes are damaged, or belong to another place.
    Damaged,
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey(id) => {
                write!(f, "it is encrypted with the key {id}, which no key file of this node has (secret_key_files)")
            }
            Self::Damaged => f.write_str("its stored value is damaged"),
        }
    }
}

impl Vault {
    /// The first key encrypts; all decrypt. `None` without a key.
    #[must_use]
    pub fn new(installation: &str, keys: Vec<OperatorKey>) -> Option<Self> {
        let mut keys = keys.into_iter();
        Some(Self { installation: installation.into(), first: keys.next()?, others: keys.collect() })
    }

    fn key(&self, id: &str) -> Option<&OperatorKey> {
        std::iter::once(&self.first).chain(self.others.iter()).find(|key| key.id() == id)
    }

    /// The id of the key that encrypts, with a check value, for the database.
    pub fn mark(&self, entropy: &dyn Entropy) -> Result<KeyMark, Sealed> {
        let id = self.first.id();
        let check_value = seal(self.first.bytes(), entropy, &self.check_data(&id), CHECK_TEXT)?;
        Ok(KeyMark { id, check_value })
    }

    /// Encrypts a value under a new data key.
    pub fn seal(&self, entropy: &dyn Entropy, place: &ValuePlace, value: &[u8]) -> Result<SealedValue, Sealed> {
        let mut data_key = Zeroizing::new([0; OPERATOR_KEY_BYTES]);
        entropy.fill(data_key.as_mut_slice());
        let wrapped_key = self.wrap(entropy, place, &data_key)?;
        let mut ciphertext = seal(&data_key, entropy, &self.data(VALUE, place), value)?;
        let nonce = ciphertext.drain(..NONCE_LEN).collect();
        Ok(SealedValue { key_id: self.first.id(), wrapped_key, nonce, ciphertext })
    }

    pub fn open(&self, place: &ValuePlace, sealed: &SealedValue) -> Result<Zeroizing<Vec<u8>>, Sealed> {
        let data_key = self.unwrap(place, sealed)?;
        let whole = [sealed.nonce.as_slice(), &sealed.ciphertext].concat();
        open(&data_key, &self.data(VALUE, place), &whole)
    }

    /// Encrypts a data key with the first key. The value does not change.
    pub fn rewrap(&self, entropy: &dyn Entropy, place: ValuePlace, sealed: &SealedValue) -> Result<Rewrap, Sealed> {
        let data_key = self.unwrap(&place, sealed)?;
        let wrapped_key = self.wrap(entropy, &place, &data_key)?;
        Ok(Rewrap { place, was_key: sealed.key_id.clone(), key_id: self.first.id(), wrapped_key })
    }

    fn wrap(
        &self,
        entropy: &dyn Entropy,
        place: &ValuePlace,
        data_key: &[u8; OPERATOR_KEY_BYTES],
    ) -> Result<Vec<u8>, Sealed> {
        seal(self.first.bytes(), entropy, &self.data(DATA_KEY, place), data_key)
    }

    fn unwrap(&self, place: &ValuePlace, sealed: &SealedValue) -> Result<Zeroizing<[u8; OPERATOR_KEY_BYTES]>, Sealed> {
        let key = self.key(&sealed.key_id).ok_or_else(|| Sealed::UnknownKey(sealed.key_id.clone()))?;
        let opened = open(key.bytes(), &self.data(DATA_KEY, place), &sealed.wrapped_key)?;
        opened.as_slice().try_into().map(Zeroizing::new).map_err(|_| Sealed::Damaged)
    }

    fn data(&self, what: &[u8], place: &ValuePlace) -> Vec<u8> {
        let mut data = what.to_vec();
        data.extend(associated_data(&self.installation, place.tenant.raw(), &place.name, place.version));
        data
    }

    fn check_data(&self, id: &str) -> Vec<u8> {
        [CHECK, self.installation.as_bytes(), b" ", id.as_bytes()].concat()
    }
}

/// Whether a process with these keys can decrypt every stored value. The error names the key that is missing or wrong.
pub fn check_keys(vault: Option<&Vault>, known: &[KeyRecord]) -> Result<(), String> {
    for KeyRecord { mark, needed, .. } in known {
        match vault.and_then(|vault| Some((vault, vault.key(&mark.id)?))) {
            None if *needed => {
                return Err(format!(
                    "the database has secrets that are encrypted with the key {}, and no key file has it; add its file to \
                     secret_key_files (--secret-key-files)",
                    mark.id
                ));
            }
            None => {}
            Some((vault, key)) => {
                let opened = open(key.bytes(), &vault.check_data(&mark.id), &mark.check_value);
                if opened.is_ok_and(|text| text.as_slice() == CHECK_TEXT) {
                    continue;
                }
                return Err(format!(
                    "the key {} cannot decrypt its check value in the database: the database belongs to another \
                     installation, or is damaged",
                    mark.id
                ));
            }
        }
    }
    Ok(())
}

fn cipher(key: &[u8; OPERATOR_KEY_BYTES]) -> Result<LessSafeKey, Sealed> {
    UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| Sealed::Damaged)
}

/// A random nonce, then the ciphertext with its tag. The nonce may be random: a data key encrypts one value, and an operator key
/// far fewer than 2^32 data keys.
fn seal(key: &[u8; OPERATOR_KEY_BYTES], entropy: &dyn Entropy, data: &[u8], text: &[u8]) -> Result<Vec<u8>, Sealed> {
    let mut nonce = [0; NONCE_LEN];
    entropy.fill(&mut nonce);
    let mut sealed = Zeroizing::new(text.to_vec());
    let cipher = cipher(key)?;
    cipher
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(data), &mut *sealed)
        .map_err(|_| Sealed::Damaged)?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open(key: &[u8; OPERATOR_KEY_BYTES], data: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Sealed> {
    let (nonce, ciphertext) = sealed.split_at_checked(NONCE_LEN).ok_or(Sealed::Damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Sealed::Damaged)?;
    let mut text = Zeroizing::new(ciphertext.to_vec());
    let bytes = cipher(key)?.open_in_place(nonce, Aad::from(data), &mut text).map_err(|_| Sealed::Damaged)?.len();
    text.truncate(bytes);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use everytick_domain::{
        ids::{TenantId, Version},
        time::DbTime,
    };

    use super::*;

    /// Different bytes at each call.
    #[derive(Default)]
    struct Counter(AtomicU8);

    impl Entropy for Counter {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
        }
    }

    fn key(n: u8) -> OperatorKey {
        OperatorKey::from_random([n; OPERATOR_KEY_BYTES])
    }

    fn vault(installation: &str, keys: &[u8]) -> Vault {
        Vault::new(installation, keys.iter().map(|n| key(*n)).collect()).unwrap()
    }

    fn place(tenant: i32, name: &str, version: i64) -> ValuePlace {
        ValuePlace { tenant: TenantId::from_raw(tenant), name: name.to_owned(), version: Version::from_raw(version) }
    }

    #[test]
    fn a_value_is_decrypted_only_in_its_own_place() {
        let (vault, entropy) = (vault("a", &[1]), Counter::default());
        let sealed = vault.seal(&entropy, &place(1, "api", 1), b"hunter2-hunter2").unwrap();
        assert_eq!(vault.open(&place(1, "api", 1), &sealed).unwrap().as_slice(), b"hunter2-hunter2");
        for other in [place(2, "api", 1), place(1, "apj", 1), place(1, "api", 2)] {
            assert_eq!(vault.open(&other, &sealed), Err(Sealed::Damaged), "{other:?}");
        }
        let elsewhere = super::tests::vault("b", &[1]);
        assert_eq!(elsewhere.open(&place(1, "api", 1), &sealed), Err(Sealed::Damaged));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let (vault, entropy, place) = (vault("a", &[1]), Counter::default(), place(1, "api", 1));
        let sealed = vault.seal(&entropy, &place, b"hunter2-hunter2").unwrap();
        let changed = |change: fn(&mut SealedValue)| {
            let mut sealed = sealed.clone();
            change(&mut sealed);
            vault.open(&place, &sealed)
        };
        assert!(changed(|_| {}).is_ok());
        for change in [
            (|sealed| sealed.ciphertext[0] ^= 1) as fn(&mut SealedValue),
            |sealed| sealed.nonce[0] ^= 1,
            |sealed| sealed.wrapped_key[20] ^= 1,
            |sealed| sealed.nonce.clear(),
            |sealed| sealed.wrapped_key.clear(),
        ] {
            assert_eq!(changed(change), Err(Sealed::Damaged));
        }
    }

    #[test]
    fn equal_values_have_different_ciphertexts() {
        let (vault, entropy, place) = (vault("a", &[1]), Counter::default(), place(1, "api", 1));
        let [one, other] = [(); 2].map(|()| vault.seal(&entropy, &place, b"hunter2-hunter2").unwrap());
        assert_ne!(one.ciphertext, other.ciphertext);
        assert_ne!(one.wrapped_key, other.wrapped_key);
        assert!(!one.ciphertext.windows(7).any(|part| part == b"hunter2"));
    }

    #[test]
    fn a_rewrapped_value_needs_only_the_new_key() {
        let (old, entropy, place) = (vault("a", &[1]), Counter::default(), place(1, "api", 1));
        let sealed = old.seal(&entropy, &place, b"hunter2-hunter2").unwrap();
        let both = vault("a", &[2, 1]);
        let rewrap = both.rewrap(&entropy, place.clone(), &sealed).unwrap();
        assert_eq!((rewrap.was_key.as_str(), rewrap.key_id.as_str()), (key(1).id().as_str(), key(2).id().as_str()));
        let new = SealedValue { key_id: rewrap.key_id, wrapped_key: rewrap.wrapped_key, ..sealed };
        assert_eq!(vault("a", &[2]).open(&place, &new).unwrap().as_slice(), b"hunter2-hunter2");
        assert_eq!(old.open(&place, &new), Err(Sealed::UnknownKey(key(2).id())));
    }

    #[test]
    fn a_missing_or_wrong_key_is_named() {
        let (vault_1, entropy) = (vault("a", &[1]), Counter::default());
        let record =
            |needed| vec![KeyRecord { mark: vault_1.mark(&entropy).unwrap(), created_at: DbTime::EPOCH, needed }];
        assert_eq!(check_keys(Some(&vault_1), &record(true)), Ok(()));
        assert_eq!(check_keys(Some(&vault("a", &[2, 1])), &record(true)), Ok(()));
        assert_eq!(check_keys(None, &record(false)), Ok(()), "no value needs it");
        for (vault, expected) in [
            (None, "no key file has it"),
            (Some(vault("a", &[2])), "no key file has it"),
            (Some(vault("b", &[1])), "another installation"),
        ] {
            let message = check_keys(vault.as_ref(), &record(true)).unwrap_err();
            assert!(message.contains(expected) && message.contains(&key(1).id()), "{message}");
        }
    }
}
