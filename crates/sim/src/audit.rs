//! Exports of the audit trail. One transaction executes at a time, so rows are visible in the order of their numbers.

use std::collections::BTreeSet;

use async_trait::async_trait;
use everytick_domain::{audit::Look, ids::TenantId};
use everytick_store::{AuditRecord, AuditStore, Page, Result, StoreError};

use super::{Point, SimStore, call::call};

const SENT: &str = "audit_stream_sent";

#[async_trait]
impl AuditStore for SimStore {
    async fn look_at_audit(&self) -> Result<Look> {
        call!(self, Read, [], |db, _| Ok(Look { given: db.audit_given, in_progress: BTreeSet::new() }))
    }
    async fn export_audit(
        &self,
        tenant: Option<TenantId>,
        after: i64,
        through: i64,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        call!(self, Read, [], |db, _| {
            let own = db.audit.iter().filter(|(of, _)| tenant.is_none_or(|tenant| tenant == *of)).map(|(_, row)| row);
            let found = own.filter(|row| row.id > after && row.id <= through).take(limit.saturating_add(1));
            Ok(Page::cut(found.cloned().collect(), limit, |row| row.id))
        })
    }
    async fn audit_sent(&self) -> Result<i64> {
        call!(self, Read, [], |db, _| {
            let Some(text) = db.settings.get(SENT) else { return Ok(0) };
            let wrong = |_| StoreError::Unreadable { doing: "read the position", source: text.clone().into() };
            text.parse().map_err(wrong)
        })
    }
    async fn set_audit_sent(&self, through: i64) -> Result<()> {
        call!(self, Ask, [], |db, _| {
            let stored = db.settings.get(SENT).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
            db.settings.insert(SENT.to_owned(), stored.max(through).to_string());
            Ok(())
        })
    }
}
