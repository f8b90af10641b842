//! The transactions about secrets, with their parameters and results. Values arrive and leave encrypted: a store never has
//! an operator key.

use std::fmt;

use async_trait::async_trait;
use everytick_domain::{
    ids::{TenantId, Version},
    secret::SecretRules,
    time::{DbTime, Span},
};

use crate::{Actor, Page, Result};

/// How many of the jobs that use a secret are named.
pub const SECRET_USERS_NAMED_MAX: usize = 100;

/// A secret without its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretRecord {
    pub rules: SecretRules,
    pub description: String,
    pub version: Version,
    pub created_at: DbTime,
    pub created_by: String,
    pub updated_at: DbTime,
    pub updated_by: String,
    /// Until this instant, deliveries are also signed with the previous version.
    pub previous_until: Option<DbTime>,
    /// How many jobs refer to it.
    pub jobs: u64,
}

/// An encrypted value.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedValue {
    /// The operator key that encrypts the data key.
    pub key_id: String,
    pub wrapped_key: Vec<u8>,
    pub nonce: Vec<u8>,
    pub ciphertext: Vec<u8>,
}

impl fmt::Debug for SealedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedValue").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// An operator key as the database knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyMark {
    pub id: String,
    /// A known text, encrypted with the key.
    pub check_value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRecord {
    pub mark: KeyMark,
    pub created_at: DbTime,
    /// Whether the data key of a value is encrypted with it.
    pub needed: bool,
}

/// A new version of a secret, or a new secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutSecret {
    pub rules: SecretRules,
    pub description: String,
    /// The version that this one follows; the default for a new secret. The value is sealed for the version after it.
    pub was: Version,
    pub value: SealedValue,
    pub key: KeyMark,
    /// For a rotation: how long deliveries are also signed with the previous version.
    pub overlap: Option<Span>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretPut {
    pub secret: SecretRecord,
    /// The secret is new.
    pub made: bool,
}

/// A secret with its stored values, the newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSecret {
    pub rules: SecretRules,
    pub version: Version,
    pub previous_until: Option<DbTime>,
    pub values: Vec<(Version, SealedValue)>,
}

/// Identifies one stored value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ValuePlace {
    pub tenant: TenantId,
    pub name: String,
    pub version: Version,
}

/// The data key of one value, encrypted with another operator key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewrap {
    pub place: ValuePlace,
    /// The key that encrypted it so far. A value that another process has changed meanwhile is left alone.
    pub was_key: String,
    pub key_id: String,
    pub wrapped_key: Vec<u8>,
}

/// The transactions about secrets. Each change writes an audit row in its transaction; no row has a value.
#[async_trait]
pub trait SecretStore: Send + Sync + 'static {
    /// Creates a secret, or a new version of it. [`StoreError::VersionMismatch`](crate::StoreError) if its version is not
    /// `put.was`. The first secret is refused while a node of a release that does not fill in references is alive.
    async fn put_secret(&self, tenant: TenantId, actor: &Actor, put: PutSecret) -> Result<SecretPut>;
    /// Removes a secret. Unless `force` is set, refuses one that jobs refer to: [`StoreError::InUse`](crate::StoreError).
    async fn delete_secret(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
        force: bool,
    ) -> Result<SecretRecord>;
    /// A secret, and the names of up to [`SECRET_USERS_NAMED_MAX`] jobs that refer to it.
    async fn get_secret(&self, tenant: TenantId, name: &str) -> Result<(SecretRecord, Vec<String>)>;
    /// Secrets by name, after the given name.
    async fn list_secrets(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<SecretRecord, String>>;
    /// The named secrets with their values, and the time of the database. Leaves out names that do not exist.
    async fn load_secrets(&self, tenant: TenantId, names: &[String]) -> Result<(Vec<StoredSecret>, DbTime)>;

    /// The id of this installation, to which values are bound. Stores the given one if there is none.
    async fn installation(&self, fresh: &str) -> Result<String>;
    async fn secret_keys(&self) -> Result<Vec<KeyRecord>>;
    /// At most `limit` values whose data keys are not encrypted with this key, in order, that follow `after`.
    async fn values_under_other_keys(
        &self,
        key_id: &str,
        after: Option<&ValuePlace>,
        limit: usize,
    ) -> Result<Vec<(ValuePlace, SealedValue)>>;
    /// Stores data keys that were encrypted with this key. Returns how many it replaced.
    async fn rewrap(&self, actor: &Actor, key: &KeyMark, rewraps: &[Rewrap]) -> Result<u64>;
    /// Removes the keys that no value needs, except `keep`. Returns the ids of the removed keys.
    async fn forget_keys(&self, actor: &Actor, keep: &str) -> Result<Vec<String>>;
}
