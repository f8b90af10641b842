//! Moves the credentials in definitions of jobs into secrets, and replaces them by references. It can be repeated: a job without
//! such credentials does not change.

use everytick_domain::{
    edit::Change,
    ids::{TenantId, Version},
    job::Job,
    secret::{SecretKind, SecretRules, check_secret_name, check_value, may_refer},
    target::{TargetKind, TargetSpec},
};
use everytick_store::{Actor, EditJob, JobRef, PutSecret, Result, Store, StoreError, ValuePlace};
use everytick_targets::inline_secrets;

use super::Vault;
use crate::commands::Entropy;

/// Jobs read in one page.
const PAGE: usize = 200;

/// One credential of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    pub tenant: TenantId,
    pub job: String,
    /// The field below the target.
    pub field: String,
    /// The secret that has the credential now.
    pub secret: String,
    /// Why the credential stays in the job.
    pub left: Option<String>,
}

/// Imports the credentials of all jobs. With `dry_run`, only lists them.
pub async fn import_inline(
    store: &dyn Store,
    actor: &Actor,
    vault: &Vault,
    entropy: &dyn Entropy,
    dry_run: bool,
) -> Result<Vec<Imported>> {
    let importer = Importer { store, actor, vault, entropy, dry_run };
    let (mut done, mut after) = (Vec::new(), None);
    loop {
        let page = store.walk_jobs(after, PAGE).await?;
        for walked in &page.jobs {
            done.extend(importer.job(&walked.job).await?);
        }
        after = page.last;
        if after.is_none() {
            return Ok(done);
        }
    }
}

struct Importer<'a> {
    store: &'a dyn Store,
    actor: &'a Actor,
    vault: &'a Vault,
    entropy: &'a dyn Entropy,
    dry_run: bool,
}

impl Importer<'_> {
    async fn job(&self, job: &Job) -> Result<Vec<Imported>> {
        let mut found: Vec<(String, String)> = Vec::new();
        let mut target = job.spec.target.clone();
        inline_secrets(&mut target, &mut |field, value| found.push((field.to_owned(), value.clone())));
        let mut listed = Vec::with_capacity(found.len());
        for (field, value) in &found {
            let secret = name_of(&job.spec.name, field);
            let left = self.import(job, &secret, value).await?.err();
            listed.push(Imported {
                tenant: job.tenant,
                job: job.spec.name.clone(),
                field: field.clone(),
                secret,
                left,
            });
        }
        if !self.dry_run && listed.iter().any(|one| one.left.is_none()) {
            inline_secrets(&mut target, &mut |field, value| {
                if let Some(one) = listed.iter().find(|one| one.field == field && one.left.is_none()) {
                    *value = format!("{{{{ secrets.{} }}}}", one.secret);
                }
            });
            self.rewrite(job, target).await?;
        }
        Ok(listed)
    }

    /// Stores one credential. The inner error says why it stays in the job.
    async fn import(&self, job: &Job, name: &str, value: &str) -> Result<Result<(), String>> {
        let target = &job.spec.target;
        let Some(kind) = SecretKind::of(TargetKind::of(target)) else {
            return Ok(Err(format!("jobs of the kind {} cannot use secrets", target.kind())));
        };
        if may_refer(value) {
            return Ok(Err("it has a reference to a secret beside other text".to_owned()));
        }
        if let Err(wrong) = check_secret_name(name).and_then(|()| check_value(value.as_bytes())) {
            return Ok(Err(wrong));
        }
        let hosts = match (kind, target.host()) {
            (SecretKind::Http, None) => return Ok(Err("the job's URL has no host".to_owned())),
            (_, host) => host.iter().map(everytick_domain::secret::Host::pattern).collect(),
        };
        let rules = SecretRules { name: name.to_owned(), hosts, kinds: vec![kind] };
        let (stored, _) = self.store.load_secrets(job.tenant, &[name.to_owned()]).await?;
        if let Some(stored) = stored.into_iter().next() {
            let place = ValuePlace { tenant: job.tenant, name: name.to_owned(), version: stored.version };
            let newest = stored.values.first().and_then(|(_, sealed)| self.vault.open(&place, sealed).ok());
            let same = newest.is_some_and(|newest| newest.as_slice() == value.as_bytes());
            let usable = stored.rules.check(kind, target.host().as_ref()).is_ok();
            // An interrupted import has stored it already.
            return Ok(if same && usable {
                Ok(())
            } else {
                Err(format!("a secret named {name:?} exists, with another value or for other hosts"))
            });
        }
        if self.dry_run {
            return Ok(Ok(()));
        }
        let version = Version::default().next();
        let place = ValuePlace { tenant: job.tenant, name: name.to_owned(), version };
        let failed =
            |why: super::Sealed| StoreError::Failed { doing: "encrypt a secret", source: why.to_string().into() };
        let put = PutSecret {
            rules,
            description: format!("imported from the job {}", job.spec.name),
            was: Version::default(),
            value: self.vault.seal(self.entropy, &place, value.as_bytes()).map_err(failed)?,
            key: self.vault.mark(self.entropy).map_err(failed)?,
            overlap: None,
        };
        self.store.put_secret(job.tenant, self.actor, put).await?;
        Ok(Ok(()))
    }

    /// Replaces the definition. Fails if the job was changed since it was read.
    async fn rewrite(&self, job: &Job, target: TargetSpec) -> Result<()> {
        let mut spec = job.spec.as_ref().clone();
        spec.target = target;
        let edit = EditJob {
            job: JobRef::Id(job.id),
            change: Change::Replace(Box::new(spec)),
            if_match: Some(job.version),
            cancel: false,
        };
        self.store.edit_job(job.tenant, self.actor, edit).await.map(drop)
    }
}

/// `job.nightly.header.authorization`. Replaces each character that the name of a secret may not have by `_`.
fn name_of(job: &str, field: &str) -> String {
    let field = field.strip_prefix("headers.").map_or_else(|| field.to_owned(), |name| format!("header.{name}"));
    let sound = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    format!("job.{job}.{field}").chars().map(sound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_named_after_the_job_and_the_field() {
        assert_eq!(name_of("nightly", "secret"), "job.nightly.secret");
        assert_eq!(name_of("nightly", "headers.X-Api-Key"), "job.nightly.header.X-Api-Key");
        assert_eq!(name_of("a.b", "env.API_TOKEN"), "job.a.b.env.API_TOKEN");
        assert_eq!(name_of("a", "headers.x!key"), "job.a.header.x_key");
    }
}
