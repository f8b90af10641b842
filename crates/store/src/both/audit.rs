//! Exports of the audit trail, and the position of its stream.

use async_trait::async_trait;
use everytick_domain::{audit::Look, ids::TenantId};
use sqlx::Row as _;

use super::{DbStore, Failed, page, read, rows, verbs};
use crate::tx::in_tx;
use crate::{AuditRecord, AuditStore, Page, Result, StoreError};

/// The setting with the number up to which the stream has sent its rows.
const SENT: &str = "audit_stream_sent";

#[async_trait]
impl AuditStore for DbStore {
    async fn look_at_audit(&self) -> Result<Look> {
        self.reads(look(self)).await
    }
    async fn export_audit(
        &self,
        tenant: Option<TenantId>,
        after: i64,
        through: i64,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        self.reads(export(self, tenant, after, through, limit)).await
    }
    async fn audit_sent(&self) -> Result<i64> {
        self.reads(sent(self)).await
    }
    async fn set_audit_sent(&self, through: i64) -> Result<()> {
        in_tx!(self, "store the position of the audit stream", tx => tx.execute(query!("audit/set_sent", SENT, through)))
            .map(drop)
    }
}

/// The number is read before the transactions: one that takes a later number is not asked for.
async fn look(store: &DbStore) -> Result<Look> {
    let mut tx = store.read("look at the audit trail").await?;
    let given = tx.scalar(query!("audit/given")).await?;
    Ok(Look { given, in_progress: verbs::audit_writers(&mut tx).await? })
}

async fn export(
    store: &DbStore,
    tenant: Option<TenantId>,
    after: i64,
    through: i64,
    limit: usize,
) -> Result<Page<AuditRecord, i64>> {
    let mut tx = store.read("export the audit trail").await?;
    let statement = if tenant.is_some() { sql!("audit/export_of") } else { sql!("audit/export") };
    let most = rows::limit(limit.saturating_add(1));
    let list = page::list(statement, "id", "detail").bind(after).bind(through).bind(most);
    let list = match tenant {
        Some(tenant) => list.bind(tenant.raw()),
        None => list,
    };
    let (found, more) = page::fetch(&mut tx, list, limit, "detail").await?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("id")).transpose().failed(tx.doing)?;
    Ok(Page { items: tx.unreadable.each("audit", &found, read::audit), next })
}

async fn sent(store: &DbStore) -> Result<i64> {
    let mut tx = store.read("read the position of the audit stream").await?;
    let Some(text) = tx.optional_scalar::<String>(query!("tokens/setting", SENT)).await? else { return Ok(0) };
    let wrong =
        |_| StoreError::Unreadable { doing: tx.doing, source: format!("the setting {SENT} is {text:?}").into() };
    text.parse().map_err(wrong)
}
