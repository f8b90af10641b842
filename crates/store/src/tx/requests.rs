//! Idempotency keys: a request that is repeated under its key returns what the first one created.

use everytick_domain::ids::TenantId;
use uuid::Uuid;

use super::Tx;
use crate::{IDEMPOTENCY_KEPT, IdempotencyKey, Result, StoreError};

/// The kind of object that a request created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Job,
    Run,
    Backfill,
    Flow,
}

impl Kind {
    /// Its form in the column `kind`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Run => "run",
            Self::Backfill => "backfill",
            Self::Flow => "flow",
        }
    }
}

/// The object that a request created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    pub kind: Kind,
    pub id: Uuid,
}

/// A request that was stored under its key.
#[derive(Clone, Debug)]
pub struct StoredRequest {
    pub fingerprint: Vec<u8>,
    /// The word of its [`Kind`].
    pub kind: String,
    pub id: Uuid,
}

/// The object that the same request created before, if any. The caller has locked the key with [`lock`].
pub async fn replayed<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    key: Option<&IdempotencyKey>,
    kind: Kind,
) -> Result<Option<Uuid>> {
    let Some(asked) = key else { return Ok(None) };
    let since = tx.now().minus(IDEMPOTENCY_KEPT);
    match tx.find_request(tenant, &asked.key, since).await? {
        None => Ok(None),
        Some(found) if found.fingerprint == asked.fingerprint && found.kind == kind.word() => Ok(Some(found.id)),
        Some(_) => Err(StoreError::KeyReused),
    }
}

/// Serializes requests under one key, and reads the clock.
pub async fn lock<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, key: Option<&IdempotencyKey>) -> Result<()> {
    if let Some(asked) = key {
        tx.lock_key(tenant, &asked.key).await?;
    }
    tx.read_clock().await?;
    Ok(())
}

pub async fn remember<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    key: Option<&IdempotencyKey>,
    kind: Kind,
    id: Uuid,
) -> Result<()> {
    match key {
        None => Ok(()),
        Some(asked) => tx.insert_request(tenant, asked, Made { kind, id }).await,
    }
}
