//! Encrypts all data keys with the first operator key, so that the other keys can be removed. Works in batches while nodes run,
//! and can be repeated.

use everytick_store::{Actor, Result, SecretStore, StoreError, ValuePlace};

use super::Vault;
use crate::commands::Entropy;

/// Values in one transaction.
const BATCH: usize = 500;
/// Maximum number of walks over all values. A node that still encrypts with another key could add values for ever.
const WALKS_MAX: usize = 10;

/// What a rekey has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rekeyed {
    /// Versions whose data key is now encrypted with the first key.
    pub versions: u64,
    /// Versions that no key of this process decrypts.
    pub failed: Vec<(ValuePlace, String)>,
    /// The keys that no value needs any more.
    pub forgotten: Vec<String>,
    /// The key that encrypts.
    pub key: String,
}

/// Walks over the values until all are encrypted with the first key, except values that no key decrypts.
pub async fn rekey<S: SecretStore + ?Sized>(
    store: &S,
    actor: &Actor,
    vault: &Vault,
    entropy: &dyn Entropy,
) -> Result<Rekeyed> {
    const DOING: &str = "encrypt data keys";
    let mark =
        vault.mark(entropy).map_err(|error| StoreError::Failed { doing: DOING, source: error.to_string().into() })?;
    let mut done = Rekeyed { key: mark.id.clone(), ..Rekeyed::default() };
    for _ in 0..WALKS_MAX {
        done.failed.clear();
        let (mut after, mut replaced) = (None, 0);
        loop {
            let page = store.values_under_other_keys(&mark.id, after.as_ref(), BATCH).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let mut rewraps = Vec::with_capacity(page.len());
            for (place, sealed) in page {
                match vault.rewrap(entropy, place.clone(), &sealed) {
                    Ok(rewrap) => rewraps.push(rewrap),
                    Err(why) => done.failed.push((place, why.to_string())),
                }
            }
            replaced += store.rewrap(actor, &mark, &rewraps).await?;
        }
        done.versions += replaced;
        // During a walk, nodes may add values at positions that it has passed. The next walk finds them.
        if replaced == 0 {
            break;
        }
    }
    done.forgotten = store.forget_keys(actor, &mark.id).await?;
    Ok(done)
}
