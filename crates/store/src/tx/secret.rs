//! Secrets: their encrypted versions, and the jobs that refer to them. A change locks the secret; a transaction that defines
//! a job share-locks the secrets that it names, so that a job never refers to a secret that was just deleted.

use std::collections::BTreeMap;

use async_trait::async_trait;
use everytick_domain::{
    ids::{TenantId, Version},
    invalid::Invalid,
    job::JobSpec,
    secret::{self, SECRET_VERSIONS_KEPT, SecretRules},
    time::DbTime,
};

use super::{Tx, audit_one, tenant::check_quota};
use crate::{
    Actor, KeyMark, KeyRecord, PutSecret, Result, Rewrap, SECRET_USERS_NAMED_MAX, SealedValue, SecretPut, SecretRecord,
    StoreError, StoredSecret, ValuePlace, calendars::JOBS_NAMED_MAX, tx::token::TokenTx,
};

/// The verbs of secrets.
#[async_trait]
pub trait SecretTx: TokenTx {
    async fn find_secret(&mut self, tenant: TenantId, name: &str) -> Result<Option<SecretRecord>>;
    async fn count_secrets(&mut self, tenant: TenantId) -> Result<u64>;
    /// The names of the live jobs that refer to a secret, by id.
    async fn secret_users(&mut self, tenant: TenantId, name: &str, limit: usize) -> Result<Vec<String>>;
    /// Writes the fields of a secret.
    async fn set_secret(&mut self, tenant: TenantId, actor: &Actor, secret: &SecretRecord) -> Result<()>;
    async fn add_value(&mut self, place: &ValuePlace, value: &SealedValue) -> Result<()>;
    /// Removes the versions of a secret up to this one.
    async fn forget_values(&mut self, tenant: TenantId, name: &str, up_to: Version) -> Result<()>;
    async fn remove_secret(&mut self, tenant: TenantId, name: &str) -> Result<()>;
    /// The stored values of the named secrets, the newest of each first.
    async fn values_of(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<(String, Version, SealedValue)>>;

    async fn secret_keys(&mut self) -> Result<Vec<KeyRecord>>;
    /// Inserts a key, unless it is stored already, and locks its row.
    async fn add_key(&mut self, key: &KeyMark) -> Result<()>;
    /// Removes a key. Returns whether it was stored.
    async fn forget_key(&mut self, id: &str) -> Result<bool>;
    async fn values_under_other_keys(
        &mut self,
        key_id: &str,
        after: Option<&ValuePlace>,
        limit: usize,
    ) -> Result<Vec<(ValuePlace, SealedValue)>>;
    /// Replaces a data key, if it is still encrypted with `was_key`. Returns whether it did.
    async fn rewrap_value(&mut self, rewrap: &Rewrap) -> Result<bool>;
}

const INSTALLATION: &str = "installation_id";

pub async fn put_secret<T: SecretTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    put: PutSecret,
) -> Result<SecretPut> {
    let name = put.rules.name.clone();
    tx.lock_secret(tenant, &name).await?;
    let mut was = tx.find_secret(tenant, &name).await?;
    let mut quota = None;
    if was.is_none() {
        // A secret that does not exist has no row to lock. So the tenant's lock serializes the creation of secrets.
        quota = tx.lock_tenant(tenant).await?.quotas(tx.limits()).secrets;
        was = tx.find_secret(tenant, &name).await?;
    }
    let has = was.as_ref().map_or_else(Version::default, |was| was.version);
    if has != put.was {
        return Err(StoreError::VersionMismatch { has, wanted: put.was });
    }
    let now = tx.read_clock().await?;
    let previous_until = match put.overlap {
        Some(overlap) => {
            let still = was.as_ref().and_then(|was| was.previous_until);
            secret::check_rotation(still, overlap, now).map_err(StoreError::Conflict)?;
            (!overlap.is_zero()).then(|| now.plus(overlap))
        }
        None => None,
    };
    if was.is_none() {
        check_new(tx, tenant, quota).await?;
    }
    let version = has.next();
    let secret = SecretRecord {
        rules: put.rules,
        description: put.description,
        version,
        created_at: was.as_ref().map_or(now, |was| was.created_at),
        created_by: was.as_ref().map_or_else(|| actor.name.clone(), |was| was.created_by.clone()),
        updated_at: now,
        updated_by: actor.name.clone(),
        previous_until,
        jobs: was.as_ref().map_or(0, |was| was.jobs),
    };
    tx.add_key(&put.key).await?;
    tx.set_secret(tenant, actor, &secret).await?;
    let place = ValuePlace { tenant, name: name.clone(), version };
    tx.add_value(&place, &put.value).await?;
    let kept = i64::try_from(SECRET_VERSIONS_KEPT).unwrap_or(i64::MAX);
    tx.forget_values(tenant, &name, Version::from_raw(version.raw().saturating_sub(kept))).await?;
    if was.is_none() {
        tx.refuse_unfilling_nodes().await?;
    }
    let action = if put.overlap.is_some() { "rotate_secret" } else { "set_secret" };
    audit_secret(tx, tenant, actor, action, &secret).await?;
    let secret = tx.find_secret(tenant, &name).await?.ok_or(StoreError::NotFound("secret"))?;
    Ok(SecretPut { secret, made: was.is_none() })
}

async fn check_new<T: SecretTx + ?Sized>(tx: &mut T, tenant: TenantId, quota: Option<u64>) -> Result<()> {
    check_quota("secrets", tx.count_secrets(tenant).await?, quota)?;
    let unfilling = tx.unfilling_nodes().await?;
    if unfilling.is_empty() {
        return Ok(());
    }
    let message = format!(
        "nodes of an earlier release are alive and would send references unchanged: {}; upgrade or stop them first",
        unfilling.join(", ")
    );
    Err(StoreError::Conflict(Invalid::new("", message)))
}

pub async fn delete_secret<T: SecretTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    if_match: Option<Version>,
    force: bool,
) -> Result<SecretRecord> {
    tx.lock_secret(tenant, name).await?;
    let was = tx.find_secret(tenant, name).await?.ok_or(StoreError::NotFound("secret"))?;
    if let Some(wanted) = if_match.filter(|wanted| *wanted != was.version) {
        return Err(StoreError::VersionMismatch { has: was.version, wanted });
    }
    if was.jobs > 0 && !force {
        let by = tx.secret_users(tenant, name, JOBS_NAMED_MAX).await?;
        let count = usize::try_from(was.jobs).unwrap_or(usize::MAX);
        return Err(StoreError::InUse { what: "secret", by, count });
    }
    tx.read_clock().await?;
    tx.forget_values(tenant, name, Version::from_raw(i64::MAX)).await?;
    tx.remove_secret(tenant, name).await?;
    audit_secret(tx, tenant, actor, "delete_secret", &was).await?;
    Ok(was)
}

async fn audit_secret<T: SecretTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    action: &str,
    secret: &SecretRecord,
) -> Result<()> {
    let detail = serde_json::json!({
        "version": secret.version.raw(),
        "hosts": secret.rules.hosts,
        "kinds": secret.rules.kinds,
        "previous_until": secret.previous_until,
    });
    audit_one(tx, tenant, actor, action, format!("secret/{}", secret.rules.name), detail.to_string()).await
}

pub async fn get_secret<T: SecretTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    name: &str,
) -> Result<(SecretRecord, Vec<String>)> {
    let found = tx.find_secret(tenant, name).await?.ok_or(StoreError::NotFound("secret"))?;
    let users = tx.secret_users(tenant, name, SECRET_USERS_NAMED_MAX).await?;
    Ok((found, users))
}

pub async fn load_secrets<T: SecretTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    names: &[String],
) -> Result<(Vec<StoredSecret>, DbTime)> {
    let mut values: BTreeMap<String, Vec<(Version, SealedValue)>> = BTreeMap::new();
    for (name, version, value) in tx.values_of(tenant, names).await? {
        values.entry(name).or_default().push((version, value));
    }
    let stored = |named: NamedSecret| {
        let values = values.remove(&named.rules.name).unwrap_or_default();
        StoredSecret { rules: named.rules, version: named.version, previous_until: named.previous_until, values }
    };
    let found = tx.secrets_named(tenant, names).await?.into_iter().map(stored).collect();
    Ok((found, tx.read_clock().await?))
}

/// The rules of a secret, and which of its versions are in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedSecret {
    pub rules: SecretRules,
    pub version: Version,
    pub previous_until: Option<DbTime>,
}

/// Locks the secrets that definitions name, and returns the rules of those that exist.
pub async fn known_to<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    specs: impl IntoIterator<Item = &JobSpec>,
) -> Result<Vec<SecretRules>> {
    let names: std::collections::BTreeSet<String> = specs.into_iter().flat_map(secret::names).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = names.into_iter().collect();
    tx.lock_secrets(tenant, &names).await?;
    Ok(tx.secrets_named(tenant, &names).await?.into_iter().map(|named| named.rules).collect())
}

/// Refuses a definition that refers to a secret that it may not use.
pub fn check(spec: &JobSpec, known: &[SecretRules]) -> Result<()> {
    // Wrong references are errors of the definition, which the domain reports.
    let Ok(uses) = secret::uses(spec) else { return Ok(()) };
    match secret::check_uses(&spec.target, &uses, known) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(StoreError::Invalid(wrong)),
    }
}

pub async fn installation<T: SecretTx + ?Sized>(tx: &mut T, fresh: &str) -> Result<String> {
    tx.lock_access().await?;
    if let Some(id) = tx.setting(INSTALLATION).await? {
        return Ok(id);
    }
    tx.set_setting(INSTALLATION, fresh).await?;
    Ok(fresh.to_owned())
}

pub async fn rewrap<T: SecretTx + ?Sized>(tx: &mut T, actor: &Actor, key: &KeyMark, rewraps: &[Rewrap]) -> Result<u64> {
    tx.read_clock().await?;
    tx.add_key(key).await?;
    let mut done: BTreeMap<TenantId, u64> = BTreeMap::new();
    for rewrap in rewraps {
        if tx.rewrap_value(rewrap).await? {
            *done.entry(rewrap.place.tenant).or_default() += 1;
        }
    }
    for (tenant, count) in &done {
        let detail = serde_json::json!({ "key": key.id, "versions": count }).to_string();
        audit_one(tx, *tenant, actor, "rekey_secrets", format!("key/{}", key.id), detail).await?;
    }
    Ok(done.values().sum())
}

pub async fn forget_keys<T: SecretTx + ?Sized>(tx: &mut T, actor: &Actor, keep: &str) -> Result<Vec<String>> {
    tx.read_clock().await?;
    // Storing a value locks the row of its key (`add_key`). So the next statement sees every value that needs a key.
    tx.lock_keys().await?;
    let mut forgotten = Vec::new();
    for key in tx.secret_keys().await?.into_iter().filter(|key| !key.needed && key.mark.id != keep) {
        let id = key.mark.id;
        if tx.forget_key(&id).await? {
            // A key belongs to the installation, as tokens without a tenant do.
            let subject = format!("key/{id}");
            audit_one(tx, TenantId::DEFAULT, actor, "forget_key", subject, "{}".to_owned()).await?;
            forgotten.push(id);
        }
    }
    Ok(forgotten)
}
