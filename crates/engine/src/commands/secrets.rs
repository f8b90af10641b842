//! Sets, rotates and deletes secrets. Values are encrypted here, before they reach the store.

use std::{fmt, sync::Arc};

use everytick_domain::{
    ids::{RunId, TenantId, Version},
    invalid::Invalid,
    secret::{self, Forms, SecretRules, is_signing_key, signing_key},
    time::Span,
};
use everytick_store::{Actor, PutSecret, Result, SecretPut, SecretRecord, StoreError, ValuePlace};
use zeroize::Zeroizing;

use super::Commands;
use crate::secrets::{Sealed, Vault};

/// How often a change is tried, because another process may change the secret at the same time.
const TRIES_MAX: usize = 5;
const DOING: &str = "set the secret";

/// A secret to store.
#[derive(Clone)]
pub struct SecretRequest {
    pub rules: SecretRules,
    pub description: String,
    pub value: Zeroizing<Vec<u8>>,
    pub if_match: Option<Version>,
}

/// Prints no value.
impl fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretRequest").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Commands {
    /// The same commands, with the operator keys of this process.
    #[must_use]
    pub fn with_vault(self, vault: Option<Vault>) -> Self {
        Self { vault, ..self }
    }

    /// Creates a secret, or stores a new version of it.
    pub async fn put_secret(&self, tenant: TenantId, actor: &Actor, ask: SecretRequest) -> Result<SecretPut> {
        let vault = self.vault()?;
        for _ in 0..TRIES_MAX {
            let has = match self.store.get_secret(tenant, &ask.rules.name).await {
                Ok((record, _)) => record.version,
                Err(StoreError::NotFound(_)) => Version::default(),
                Err(error) => return Err(error),
            };
            if let Some(wanted) = ask.if_match.filter(|wanted| *wanted != has) {
                return Err(StoreError::VersionMismatch { has, wanted });
            }
            let (rules, description) = (ask.rules.clone(), ask.description.clone());
            let put = self.sealed(vault, tenant, rules, description, has, &ask.value)?;
            match self.store.put_secret(tenant, actor, put).await {
                Err(StoreError::VersionMismatch { .. }) if ask.if_match.is_none() => {}
                answer => return answer,
            }
        }
        Err(changed_meanwhile())
    }

    /// Replaces a signing key by a random one, and returns the new key. Deliveries are also signed with the old key until the
    /// overlap has passed.
    pub async fn rotate_secret(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        overlap: Span,
    ) -> Result<(SecretRecord, Zeroizing<String>)> {
        let vault = self.vault()?;
        for _ in 0..TRIES_MAX {
            let (was, _) = self.store.get_secret(tenant, name).await?;
            let (stored, _) = self.store.load_secrets(tenant, &[name.to_owned()]).await?;
            let Some(stored) = stored.into_iter().find(|stored| stored.version == was.version) else { continue };
            let place = ValuePlace { tenant, name: name.to_owned(), version: stored.version };
            let newest = stored.values.first().ok_or(StoreError::NotFound("secret"))?;
            if !is_signing_key(&vault.open(&place, &newest.1).map_err(|why| sealed_error(&why))?) {
                let message = "is not a signing key (whsec_...), so only its receiver can choose the next value; set it with \
                               PUT";
                return Err(StoreError::Conflict(Invalid::new("name", message)));
            }
            let mut random = Zeroizing::new([0; 32]);
            self.entropy.fill(random.as_mut_slice());
            let value = signing_key(&random);
            let put = self.sealed(vault, tenant, was.rules, was.description, was.version, value.as_bytes())?;
            match self.store.put_secret(tenant, actor, PutSecret { overlap: Some(overlap), ..put }).await {
                Err(StoreError::VersionMismatch { .. }) => {}
                answer => return answer.map(|put| (put.secret, value)),
            }
        }
        Err(changed_meanwhile())
    }

    /// Removes a secret. Unless `force` is set, refuses one that jobs refer to.
    pub async fn delete_secret(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
        force: bool,
    ) -> Result<SecretRecord> {
        self.store.delete_secret(tenant, actor, name, if_match, force).await
    }

    /// The texts to remove from a report on a run, because the receiver may repeat the secrets that it got. `None` if the run's job
    /// refers to no secret.
    pub(super) async fn secrets_of_run(&self, tenant: TenantId, run: RunId) -> Result<Option<Arc<Forms>>> {
        let Some(vault) = &self.vault else { return Ok(None) };
        let job = match self.store.get_run(tenant, run).await {
            Ok(record) => record.job,
            // The settlement of the report then returns this error.
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let loaded = self.store.load_jobs(&[job]).await?;
        let names: Vec<String> = loaded.iter().flat_map(|loaded| secret::names(&loaded.job.spec)).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let (stored, _) = self.store.load_secrets(tenant, &names).await?;
        let values: Vec<Zeroizing<Vec<u8>>> = stored
            .iter()
            .flat_map(|stored| stored.values.iter().map(move |(version, sealed)| (stored, *version, sealed)))
            .filter_map(|(stored, version, sealed)| {
                let place = ValuePlace { tenant, name: stored.rules.name.clone(), version };
                vault.open(&place, sealed).ok()
            })
            .collect();
        Ok(Some(Arc::new(Forms::of(values.iter().map(|value| value.as_slice())))))
    }

    fn vault(&self) -> Result<&Vault> {
        self.vault.as_ref().ok_or_else(|| {
            let message = "this server has no key file, so it cannot store secrets; create one with `everytick secret keygen`, \
                           and start the server with --secret-key-files";
            StoreError::Conflict(Invalid::new("", message))
        })
    }

    fn sealed(
        &self,
        vault: &Vault,
        tenant: TenantId,
        rules: SecretRules,
        description: String,
        was: Version,
        value: &[u8],
    ) -> Result<PutSecret> {
        let place = ValuePlace { tenant, name: rules.name.clone(), version: was.next() };
        let value = vault.seal(self.entropy.as_ref(), &place, value).map_err(|why| sealed_error(&why))?;
        let key = vault.mark(self.entropy.as_ref()).map_err(|why| sealed_error(&why))?;
        Ok(PutSecret { rules, description, was, value, key, overlap: None })
    }
}

fn sealed_error(why: &Sealed) -> StoreError {
    StoreError::Failed { doing: DOING, source: why.to_string().into() }
}

fn changed_meanwhile() -> StoreError {
    StoreError::Failed { doing: DOING, source: "other requests change the secret at the same time".into() }
}
