//! The transactions of readers that follow the audit trail: exports, and the stream of the leader.

use async_trait::async_trait;
use everytick_domain::{audit::Look, ids::TenantId};

use crate::{AuditRecord, Page, Result};

#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// The last number that was given to an audit row, and the transactions that may still commit rows. Numbers up to a
    /// settled one (`everytick_domain::audit`) have their rows in every later snapshot.
    async fn look_at_audit(&self) -> Result<Look>;
    /// Audit rows of a tenant, or of all, with numbers above `after` and up to `through`, in the order of their numbers; at most
    /// `limit`. A row that cannot be decoded is left out.
    async fn export_audit(
        &self,
        tenant: Option<TenantId>,
        after: i64,
        through: i64,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>>;
    /// The number up to which the stream of the audit trail has sent its rows.
    async fn audit_sent(&self) -> Result<i64>;
    /// Stores this number, unless a higher one is stored.
    async fn set_audit_sent(&self, through: i64) -> Result<()>;
}
