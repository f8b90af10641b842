//! The verbs of secrets, and the secrets of jobs. The transactions that use them are in `crate::tx::secret`.

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, TenantId, Version},
    job::{Job, JobSpec},
    secret::{self, HostPattern, SecretKind, SecretRules},
    time::DbTime,
};
use sqlx::Row as _;

use super::{DbRow, DbStore, DbTx, Failed, rows, verbs};
use crate::{
    Actor, KeyMark, KeyRecord, Page, PutSecret, Result, Rewrap, SealedValue, SecretPut, SecretRecord, SecretStore,
    StoredSecret, ValuePlace,
    tx::{
        JobRow, in_read, in_tx,
        secret::{self as script, NamedSecret, SecretTx},
    },
};

#[async_trait]
impl SecretStore for DbStore {
    async fn put_secret(&self, tenant: TenantId, actor: &Actor, put: PutSecret) -> Result<SecretPut> {
        in_tx!(self.of(tenant), "set the secret", tx => script::put_secret(tx, tenant, actor, put))
    }
    async fn delete_secret(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
        force: bool,
    ) -> Result<SecretRecord> {
        in_tx!(self.of(tenant), "delete the secret", tx => script::delete_secret(tx, tenant, actor, name, if_match, force))
    }
    async fn get_secret(&self, tenant: TenantId, name: &str) -> Result<(SecretRecord, Vec<String>)> {
        in_read!(self.of(tenant), "read the secret", tx => script::get_secret(tx, tenant, name))
    }
    async fn list_secrets(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<SecretRecord, String>> {
        self.reads(list(self, tenant, after, limit)).await
    }
    async fn load_secrets(&self, tenant: TenantId, names: &[String]) -> Result<(Vec<StoredSecret>, DbTime)> {
        in_read!(self.of(tenant), "load secrets", tx => script::load_secrets(tx, tenant, names))
    }
    async fn installation(&self, fresh: &str) -> Result<String> {
        in_tx!(self, "read the id of the installation", tx => script::installation(tx, fresh))
    }
    async fn secret_keys(&self) -> Result<Vec<KeyRecord>> {
        in_read!(self, "read the keys", tx => tx.secret_keys())
    }
    async fn values_under_other_keys(
        &self,
        key_id: &str,
        after: Option<&ValuePlace>,
        limit: usize,
    ) -> Result<Vec<(ValuePlace, SealedValue)>> {
        in_read!(self, "read values", tx => tx.values_under_other_keys(key_id, after, limit))
    }
    async fn rewrap(&self, actor: &Actor, key: &KeyMark, rewraps: &[Rewrap]) -> Result<u64> {
        in_tx!(self, "encrypt data keys with another key", tx => script::rewrap(tx, actor, key, rewraps))
    }
    async fn forget_keys(&self, actor: &Actor, keep: &str) -> Result<Vec<String>> {
        in_tx!(self, "remove unneeded keys", tx => script::forget_keys(tx, actor, keep))
    }
}

async fn list(
    store: &DbStore,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<SecretRecord, String>> {
    let mut tx = store.of(tenant).read("list secrets").await?;
    let most = rows::limit(limit.saturating_add(1));
    let found = tx.fetch_all(query!("secrets/secret_list", tenant.raw(), after.unwrap_or_default(), most)).await?;
    let names = found.iter().map(|row| row.try_get("name")).collect::<sqlx::Result<Vec<String>>>().failed(tx.doing)?;
    // The position of the next page, even if the last row cannot be decoded.
    let next = if found.len() > limit { names.get(limit.saturating_sub(1)).cloned() } else { None };
    let shown = found.get(..limit.min(found.len())).unwrap_or_default();
    Ok(Page { items: tx.unreadable.each("secrets", shown, record), next })
}

fn record(row: &DbRow) -> rows::Decoded<SecretRecord> {
    let NamedSecret { rules, version, previous_until } = named_secret(row)?;
    Ok(SecretRecord {
        rules,
        description: row.try_get("description")?,
        version,
        created_at: rows::at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        updated_at: rows::at(row, "updated_at")?,
        updated_by: row.try_get("updated_by")?,
        previous_until,
        jobs: row.try_get::<i64, _>("jobs")?.unsigned_abs(),
    })
}

fn named_secret(row: &DbRow) -> rows::Decoded<NamedSecret> {
    let (hosts, kinds): (String, String) = (row.try_get("hosts")?, row.try_get("kinds")?);
    let hosts: Vec<HostPattern> = serde_json::from_str(&hosts).map_err(|error| rows::wrong("hosts", error))?;
    let kinds: Vec<SecretKind> = serde_json::from_str(&kinds).map_err(|error| rows::wrong("kinds", error))?;
    Ok(NamedSecret {
        rules: SecretRules { name: row.try_get("name")?, hosts, kinds },
        version: Version::from_raw(row.try_get("version")?),
        previous_until: rows::time(row, "previous_until")?,
    })
}

fn value(row: &DbRow) -> rows::Decoded<(String, Version, SealedValue)> {
    let sealed = SealedValue {
        key_id: row.try_get("key_id")?,
        wrapped_key: row.try_get("wrapped_key")?,
        nonce: row.try_get("nonce")?,
        ciphertext: row.try_get("ciphertext")?,
    };
    Ok((row.try_get("name")?, Version::from_raw(row.try_get("version")?), sealed))
}

fn placed_value(row: &DbRow) -> rows::Decoded<(ValuePlace, SealedValue)> {
    let (name, version, sealed) = value(row)?;
    Ok((ValuePlace { tenant: rows::tenant(row)?, name, version }, sealed))
}

fn key(row: &DbRow) -> rows::Decoded<KeyRecord> {
    let mark = KeyMark { id: row.try_get("id")?, check_value: row.try_get("check_value")? };
    Ok(KeyRecord { mark, created_at: rows::at(row, "created_at")?, needed: row.try_get("needed")? })
}

/// The rules of the named secrets. Leaves out names that do not exist.
pub(super) async fn named(tx: &mut DbTx, tenant: TenantId, names: &[String]) -> Result<Vec<NamedSecret>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    tx.fetch_decoded(query!("secrets/secret_rules", tenant.raw(), rows::names(names)), named_secret).await
}

/// Stores which secrets new jobs refer to.
pub(super) async fn used<'a>(
    tx: &mut DbTx,
    tenant: TenantId,
    jobs: impl Iterator<Item = (JobId, &'a JobSpec)>,
) -> Result<()> {
    let of_job = |(job, spec): (JobId, &'a JobSpec)| secret::names(spec).into_iter().map(move |name| (job, name));
    let uses: Vec<(JobId, String)> = jobs.flat_map(of_job).collect();
    if uses.is_empty() {
        return Ok(());
    }
    let uses: Vec<(JobId, &str)> = uses.iter().map(|(job, name)| (*job, name.as_str())).collect();
    verbs::insert_secret_uses(tx, tenant, &uses).await
}

/// Stores which secrets a job refers to now, if that has changed.
pub(super) async fn used_now(tx: &mut DbTx, was: &JobRow, job: &Job) -> Result<()> {
    let names = if job.deleted_at.is_some() { Default::default() } else { secret::names(&job.spec) };
    if names == secret::names(&was.job.spec) {
        return Ok(());
    }
    tx.execute(query!("secrets/secret_unuse", job.id.uuid())).await?;
    if names.is_empty() {
        return Ok(());
    }
    used(tx, job.tenant, std::iter::once((job.id, &*job.spec))).await
}

#[async_trait]
impl SecretTx for DbTx {
    async fn find_secret(&mut self, tenant: TenantId, name: &str) -> Result<Option<SecretRecord>> {
        let found = self.fetch_optional(query!("secrets/secret_get", tenant.raw(), name)).await?;
        found.as_ref().map(record).transpose().failed(self.doing)
    }
    async fn count_secrets(&mut self, tenant: TenantId) -> Result<u64> {
        self.scalar(query!("secrets/secret_count", tenant.raw())).await.map(i64::unsigned_abs)
    }
    async fn secret_users(&mut self, tenant: TenantId, name: &str, limit: usize) -> Result<Vec<String>> {
        let users = query!("secrets/secret_users", tenant.raw(), name, rows::limit(limit));
        let found: Vec<(JobId, String)> = self.fetch_decoded(users, rows::named_job).await?;
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }
    async fn set_secret(&mut self, tenant: TenantId, actor: &Actor, secret: &SecretRecord) -> Result<()> {
        let json = |text: serde_json::Result<String>| text.unwrap_or_default();
        let set = query!(
            "secrets/secret_set",
            tenant.raw(),
            &secret.rules.name,
            secret.version.raw(),
            json(serde_json::to_string(&secret.rules.hosts)),
            json(serde_json::to_string(&secret.rules.kinds)),
            rows::text(&secret.description),
            secret.updated_at.millis(),
            rows::text(&actor.name),
            secret.previous_until.map(DbTime::millis),
        );
        self.execute_or_refuse(set).await.map(drop)
    }
    async fn add_value(&mut self, place: &ValuePlace, value: &SealedValue) -> Result<()> {
        let add = query!(
            "secrets/secret_add_version",
            place.tenant.raw(),
            &place.name,
            place.version.raw(),
            &value.key_id,
            value.wrapped_key.as_slice(),
            value.nonce.as_slice(),
            value.ciphertext.as_slice(),
        );
        self.execute_or_refuse(add).await.map(drop)
    }
    async fn forget_values(&mut self, tenant: TenantId, name: &str, up_to: Version) -> Result<()> {
        self.execute(query!("secrets/secret_forget_versions", tenant.raw(), name, up_to.raw())).await.map(drop)
    }
    async fn remove_secret(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.execute(query!("secrets/secret_forget", tenant.raw(), name)).await.map(drop)
    }
    async fn values_of(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<(String, Version, SealedValue)>> {
        self.fetch_decoded(query!("secrets/secret_values", tenant.raw(), rows::names(names)), value).await
    }

    async fn secret_keys(&mut self) -> Result<Vec<KeyRecord>> {
        self.fetch_decoded(query!("secrets/secret_keys"), key).await
    }
    async fn add_key(&mut self, key: &KeyMark) -> Result<()> {
        let add = query!("secrets/key_add", &key.id, key.check_value.as_slice(), self.now.millis());
        self.execute_or_refuse(add).await.map(drop)
    }
    async fn forget_key(&mut self, id: &str) -> Result<bool> {
        self.execute(query!("secrets/key_forget", id)).await.map(|count| count > 0)
    }
    async fn values_under_other_keys(
        &mut self,
        key_id: &str,
        after: Option<&ValuePlace>,
        limit: usize,
    ) -> Result<Vec<(ValuePlace, SealedValue)>> {
        let (tenant, name, version) = match after {
            Some(place) => (place.tenant.raw(), place.name.as_str(), place.version.raw()),
            None => (i32::MIN, "", 0),
        };
        let wrapped = query!("secrets/secret_wrapped", key_id, tenant, name, version, rows::limit(limit));
        self.fetch_decoded(wrapped, placed_value).await
    }
    async fn rewrap_value(&mut self, rewrap: &Rewrap) -> Result<bool> {
        let place = &rewrap.place;
        let replace = query!(
            "secrets/secret_rewrap",
            place.tenant.raw(),
            &place.name,
            place.version.raw(),
            &rewrap.was_key,
            &rewrap.key_id,
            rewrap.wrapped_key.as_slice(),
        );
        self.execute(replace).await.map(|count| count > 0)
    }
}
