//! Secrets on maps.

use std::{collections::BTreeMap, ops::Bound};

use async_trait::async_trait;
use everytick_domain::{
    ids::{TenantId, Version},
    secret,
    time::DbTime,
};
use everytick_store::{
    Actor, KeyMark, KeyRecord, Page, PutSecret, Result, Rewrap, SealedValue, SecretPut, SecretRecord, SecretStore,
    StoredSecret, ValuePlace,
    tx::secret::{self as script, NamedSecret, SecretTx},
};

use super::{
    Point, SimStore,
    call::{call, script},
    db::Db,
    tx::SimTx,
};

/// The tables of secrets.
#[derive(Clone, Default, Debug)]
pub(super) struct Secrets {
    by_name: BTreeMap<(TenantId, String), SecretRecord>,
    values: BTreeMap<ValuePlace, SealedValue>,
    keys: BTreeMap<String, KeyRecord>,
}

impl Secrets {
    /// Removes the secrets of a tenant. Returns how many.
    pub(super) fn remove_of(&mut self, tenant: TenantId) -> usize {
        let before = self.by_name.len();
        self.by_name.retain(|(owner, _), _| *owner != tenant);
        self.values.retain(|place, _| place.tenant != tenant);
        before - self.by_name.len()
    }
}

#[async_trait]
impl SecretStore for SimStore {
    async fn put_secret(&self, tenant: TenantId, actor: &Actor, put: PutSecret) -> Result<SecretPut> {
        script!(self, Ask, "set the secret", [actor], |tx| script::put_secret(tx, tenant, &actor, put))
    }
    async fn delete_secret(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
        force: bool,
    ) -> Result<SecretRecord> {
        script!(self, Ask, "delete the secret", [actor, name], |tx| script::delete_secret(
            tx, tenant, &actor, &name, if_match, force
        ))
    }
    async fn get_secret(&self, tenant: TenantId, name: &str) -> Result<(SecretRecord, Vec<String>)> {
        script!(self, Read, "read the secret", [name], |tx| script::get_secret(tx, tenant, &name))
    }
    async fn list_secrets(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<SecretRecord, String>> {
        let from = (tenant, after.unwrap_or_default().to_owned());
        call!(self, Read, [], |db, _| {
            let own = db.secrets.by_name.range((Bound::Excluded(from), Bound::Unbounded));
            let own =
                own.take_while(|((owner, _), _)| *owner == tenant).map(|(_, secret)| db.with_jobs(tenant, secret));
            Ok(Page::cut(own.take(limit.saturating_add(1)).collect(), limit, |secret| secret.rules.name.clone()))
        })
    }
    async fn load_secrets(&self, tenant: TenantId, names: &[String]) -> Result<(Vec<StoredSecret>, DbTime)> {
        script!(self, Read, "load secrets", [names], |tx| script::load_secrets(tx, tenant, &names))
    }
    async fn installation(&self, fresh: &str) -> Result<String> {
        script!(self, Ask, "read the id of the installation", [fresh], |tx| script::installation(tx, &fresh))
    }
    async fn secret_keys(&self) -> Result<Vec<KeyRecord>> {
        script!(self, Read, "read the keys", [], |tx| tx.secret_keys())
    }
    async fn values_under_other_keys(
        &self,
        key_id: &str,
        after: Option<&ValuePlace>,
        limit: usize,
    ) -> Result<Vec<(ValuePlace, SealedValue)>> {
        let after = after.cloned();
        script!(self, Read, "read values", [key_id], |tx| tx.values_under_other_keys(&key_id, after.as_ref(), limit))
    }
    async fn rewrap(&self, actor: &Actor, key: &KeyMark, rewraps: &[Rewrap]) -> Result<u64> {
        script!(self, Ask, "encrypt data keys with another key", [actor, key, rewraps], |tx| script::rewrap(
            tx, &actor, &key, &rewraps
        ))
    }
    async fn forget_keys(&self, actor: &Actor, keep: &str) -> Result<Vec<String>> {
        script!(self, Ask, "remove unneeded keys", [actor, keep], |tx| script::forget_keys(tx, &actor, &keep))
    }
}

impl Db {
    fn secret_users(&self, tenant: TenantId, name: &str) -> Vec<String> {
        let uses = self.live(tenant).filter(|row| secret::names(&row.job.spec).contains(name));
        uses.map(|row| row.job.spec.name.clone()).collect()
    }

    fn with_jobs(&self, tenant: TenantId, secret: &SecretRecord) -> SecretRecord {
        let jobs = self.secret_users(tenant, &secret.rules.name).len() as u64;
        SecretRecord { jobs, ..secret.clone() }
    }

    pub(super) fn secrets_named(&self, tenant: TenantId, names: &[String]) -> Vec<NamedSecret> {
        let found = names.iter().filter_map(|name| self.secrets.by_name.get(&(tenant, name.clone())));
        let named = |secret: &SecretRecord| NamedSecret {
            rules: secret.rules.clone(),
            version: secret.version,
            previous_until: secret.previous_until,
        };
        found.map(named).collect()
    }
}

#[async_trait]
impl SecretTx for SimTx<'_> {
    async fn find_secret(&mut self, tenant: TenantId, name: &str) -> Result<Option<SecretRecord>> {
        let found = self.db.secrets.by_name.get(&(tenant, name.to_owned()));
        Ok(found.map(|secret| self.db.with_jobs(tenant, secret)))
    }
    async fn count_secrets(&mut self, tenant: TenantId) -> Result<u64> {
        Ok(self.db.secrets.by_name.keys().filter(|(owner, _)| *owner == tenant).count() as u64)
    }
    async fn secret_users(&mut self, tenant: TenantId, name: &str, limit: usize) -> Result<Vec<String>> {
        let mut users = self.db.secret_users(tenant, name);
        users.truncate(limit);
        Ok(users)
    }
    async fn set_secret(&mut self, tenant: TenantId, _: &Actor, secret: &SecretRecord) -> Result<()> {
        self.db.secrets.by_name.insert((tenant, secret.rules.name.clone()), secret.clone());
        Ok(())
    }
    async fn add_value(&mut self, place: &ValuePlace, value: &SealedValue) -> Result<()> {
        self.db.secrets.values.insert(place.clone(), value.clone());
        Ok(())
    }
    async fn forget_values(&mut self, tenant: TenantId, name: &str, up_to: Version) -> Result<()> {
        let gone = |place: &ValuePlace| place.tenant == tenant && place.name == name && place.version <= up_to;
        self.db.secrets.values.retain(|place, _| !gone(place));
        Ok(())
    }
    async fn remove_secret(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.db.secrets.by_name.remove(&(tenant, name.to_owned()));
        Ok(())
    }
    async fn values_of(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<(String, Version, SealedValue)>> {
        let of = |(place, _): &(&ValuePlace, &SealedValue)| place.tenant == tenant && names.contains(&place.name);
        let found = self.db.secrets.values.iter().rev().filter(of);
        Ok(found.map(|(place, value)| (place.name.clone(), place.version, value.clone())).collect())
    }

    async fn secret_keys(&mut self) -> Result<Vec<KeyRecord>> {
        let needed = |id: &str| self.db.secrets.values.values().any(|value| value.key_id == id);
        let keys = self.db.secrets.keys.values();
        Ok(keys.map(|key| KeyRecord { needed: needed(&key.mark.id), ..key.clone() }).collect())
    }
    async fn add_key(&mut self, key: &KeyMark) -> Result<()> {
        let record = KeyRecord { mark: key.clone(), created_at: self.at, needed: false };
        self.db.secrets.keys.entry(key.id.clone()).or_insert(record);
        Ok(())
    }
    async fn forget_key(&mut self, id: &str) -> Result<bool> {
        Ok(self.db.secrets.keys.remove(id).is_some())
    }
    async fn values_under_other_keys(
        &mut self,
        key_id: &str,
        after: Option<&ValuePlace>,
        limit: usize,
    ) -> Result<Vec<(ValuePlace, SealedValue)>> {
        let from = after.map_or(Bound::Unbounded, |place| Bound::Excluded(place.clone()));
        let later = self.db.secrets.values.range((from, Bound::Unbounded));
        let found = later.filter(|(_, value)| value.key_id != key_id).take(limit);
        Ok(found.map(|(place, value)| (place.clone(), value.clone())).collect())
    }
    async fn rewrap_value(&mut self, rewrap: &Rewrap) -> Result<bool> {
        match self.db.secrets.values.get_mut(&rewrap.place).filter(|value| value.key_id == rewrap.was_key) {
            Some(value) => {
                value.key_id.clone_from(&rewrap.key_id);
                value.wrapped_key.clone_from(&rewrap.wrapped_key);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}
