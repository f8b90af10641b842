//! Code of named mutants ([`Mutant`]). The tests must detect each of them. Without the feature `mutants` of the domain none is
//! on, and nothing here is executed.

use std::{borrow::Cow, collections::HashMap};

use everytick_domain::{ids::Fence, mutant::Mutant};
use uuid::Uuid;

use super::{Failed, PostgresStore, rows};
use crate::{Result, Settle};

/// `UnfencedSettle`: settles under the current fence of each run, even if the claim is not the caller's.
pub(super) async fn any_fence<'a>(store: &PostgresStore, settles: &'a [Settle]) -> Result<Cow<'a, [Settle]>> {
    if !Mutant::UnfencedSettle.is_on() {
        return Ok(Cow::Borrowed(settles));
    }
    let mut write = store.write("settle runs").await?;
    let doing = write.doing;
    let found: Vec<(Uuid, i64)> = sqlx::query_as("select id, fence from runs where id = any($1)")
        .bind(rows::run_ids(settles.iter().map(|settle| settle.settlement.run)))
        .fetch_all(&mut *write.tx)
        .await
        .failed(doing)?;
    write.rollback().await;
    let fences: HashMap<Uuid, i64> = found.into_iter().collect();
    let mut settles = settles.to_vec();
    for settle in &mut settles {
        if let Some(fence) = fences.get(&settle.settlement.run.uuid()) {
            settle.settlement.fence = Fence::from_raw(*fence);
        }
    }
    Ok(Cow::Owned(settles))
}
