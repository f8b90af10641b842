//! Reads and decrypts the secrets to which a delivery refers, and checks again that its receiver may have them: the secret may
//! have changed since the job was defined.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    job::Job,
    secret::{self, Scrubber, SecretKind},
    target::{Outcome, Retry, TargetKind},
    time::DbTime,
};
use everytick_store::{StoreError, StoredSecret, ValuePlace};
use everytick_targets::{SecretValue, Secrets};

use crate::{secrets::Vault, shared::Shared};

/// The secrets of one attempt, or the outcome of the attempt if it cannot have them.
pub(super) async fn resolve(shared: &Shared, job: &Job) -> Result<Secrets, Outcome> {
    // A definition of an earlier release may have a text that only looks like a reference. It is sent unchanged, as before.
    let uses = secret::uses(&job.spec).unwrap_or_default();
    if uses.is_empty() {
        return Ok(Secrets::default());
    }
    let names: BTreeSet<&str> = uses.iter().map(|used| used.name.as_str()).collect();
    let Some(vault) = &shared.parts.settings.vault else {
        return Err(failed(
            "the job refers to a secret, and this node has no key file (--secret-key-files)".to_owned(),
            Retry::Allowed,
        ));
    };
    let asked: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let load = shared.parts.store.load_secrets(job.tenant, &asked);
    let (stored, now) = match shared.read("load secrets", load).await {
        Ok(loaded) => loaded,
        Err(error @ StoreError::Unreadable { .. }) => return Err(failed(error.to_string(), Retry::Allowed)),
        Err(error) => {
            tracing::warn!(%error, job = job.spec.name, "a run is released unsent: its secrets could not be read");
            return Err(Outcome::Unsent);
        }
    };
    let mut values = BTreeMap::new();
    for name in names {
        let found = stored.iter().find(|stored| stored.rules.name == name);
        let found = found.ok_or_else(|| failed(format!("the secret {name:?} does not exist"), Retry::Allowed))?;
        check(job, found).map_err(|why| failed(why, Retry::Never))?;
        let value = open(vault, job, found, now);
        let value =
            value.map_err(|why| failed(format!("the secret {name:?} cannot be decrypted: {why}"), Retry::Allowed))?;
        values.insert(name.to_owned(), value);
    }
    let in_payload = uses.iter().filter(|used| used.field == secret::PAYLOAD_FIELD).map(|used| used.name.clone());
    Ok(Secrets::new(values, in_payload.collect()))
}

fn check(job: &Job, stored: &StoredSecret) -> Result<(), String> {
    let target = &job.spec.target;
    match SecretKind::of(TargetKind::of(target)) {
        Some(kind) => stored.rules.check(kind, target.host().as_ref()),
        None => Err(format!("jobs of the kind {} cannot use secrets", target.kind())),
    }
}

/// The current value, and the previous one while deliveries are also signed with it.
fn open(vault: &Vault, job: &Job, stored: &StoredSecret, now: DbTime) -> Result<SecretValue, String> {
    let mut values = stored.values.iter().map(|(version, sealed)| {
        let place = ValuePlace { tenant: job.tenant, name: stored.rules.name.clone(), version: *version };
        vault.open(&place, sealed).map_err(|why| why.to_string())
    });
    let current = values.next().unwrap_or_else(|| Err("its stored value is missing".to_owned()))?;
    let previous = match stored.previous_until.filter(|until| *until > now) {
        Some(_) => values.next().transpose()?,
        None => None,
    };
    Ok(SecretValue { version: stored.version, current, previous })
}

fn failed(error: String, retry: Retry) -> Outcome {
    Outcome::Failed { error, output: None, retry }
}

/// The outcome without values of secrets. The targets have scrubbed the output already; an error may quote what was sent.
pub(super) fn scrubbed(secrets: &Secrets, outcome: Outcome) -> Outcome {
    let Some(forms) = secrets.forms() else { return outcome };
    let clean = |text: String| Scrubber::scrub(forms, &text);
    let cleaned = |text: Option<String>| text.map(clean);
    match outcome {
        Outcome::Succeeded { output } => Outcome::Succeeded { output: cleaned(output) },
        Outcome::Failed { error, output, retry } => {
            Outcome::Failed { error: clean(error), output: cleaned(output), retry }
        }
        Outcome::Gone { note, output } => Outcome::Gone { note: clean(note), output: cleaned(output) },
        Outcome::TimedOut { after, output } => Outcome::TimedOut { after, output: cleaned(output) },
        Outcome::Cancelled { output } => Outcome::Cancelled { output: cleaned(output) },
        Outcome::NotHere { error, address } => Outcome::NotHere { error: clean(error), address },
        Outcome::Accepted | Outcome::Unreported { .. } | Outcome::Lost | Outcome::Unsent | Outcome::Returned => outcome,
    }
}
