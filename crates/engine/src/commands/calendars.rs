//! Sets and deletes calendars.

use everytick_domain::ids::{TenantId, Version};
use everytick_store::{Actor, CalendarPut, CalendarRecord, PutCalendar, Result};

use super::Commands;

impl Commands {
    pub async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut> {
        let put = self.store.put_calendar(tenant, actor, put).await?;
        self.hints.jobs_changed();
        Ok(put)
    }

    pub async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord> {
        self.store.delete_calendar(tenant, actor, name, if_match).await
    }
}
