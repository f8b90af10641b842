//! Edits, pauses, resumes and deletes a job in one transaction (I11). Locks the job, which waits for ticks being
//! recorded. Then reads the job's state and the clock, asks the domain, and writes the result.

use everytick_domain::{
    edit::{self, Change, Edit, LockedJob},
    ids::TenantId,
    job::JobSpec,
};

use super::{JobLock, JobRow, Tx, audit_one, cancel, count_open, edges, invalid, lock_job, secret, tenant as tenants};
use crate::{Actor, BacklogAction, EditJob, Edited, Result, StoreError, crons::CRONS, facts};

pub async fn edit_job<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, actor: &Actor, mut ask: EditJob) -> Result<Edited> {
    let region = replaced(&ask.change).and_then(|spec| spec.home_region.clone());
    let homes = tx.lock_homes(region.as_deref().as_slice()).await?;
    let exclude = replaced(&ask.change).map_or_else(Vec::new, |spec| spec.exclude().to_vec());
    tx.lock_calendars(tenant, &exclude).await?;
    let calendars = tx.calendars_named(tenant, &exclude).await?;
    let secrets = secret::known_to(tx, tenant, replaced(&ask.change)).await?;
    let row = lock_job(tx, JobLock::All, tenant, &ask.job).await?;
    if matches!(ask.change, Change::Replace(_) | Change::Resume) {
        tenants::shared(tx, tenant).await?.check_active()?;
    }
    let has = row.job.version;
    if let Some(wanted) = ask.if_match.filter(|wanted| *wanted != has) {
        return Err(StoreError::VersionMismatch { has, wanted });
    }
    check_name(tx, &row, &ask.change).await?;
    if let Some(spec) = replaced(&ask.change) {
        secret::check(spec, &secrets)?;
    }
    let parents = edges::of_edit(tx, &row.job, &mut ask.change).await?;
    let locked = LockedJob { calendars, ..locked(tx, &row).await? };
    let action = ask.change.word();
    let ends = matches!(ask.change, Change::Pause { .. } | Change::Delete);
    let mut edited = match edit::edit(&locked, ask.change, &CRONS).map_err(StoreError::Invalid)? {
        None => Edited { job: row.job, cursor: row.cursor, effective_at: None, cancelled: Vec::new(), backlog: false },
        Some(mut edit) => {
            if edit.job.spec.home_region != row.job.spec.home_region {
                let region = edit.job.spec.home_region.as_deref();
                let place = homes.place(edit.job.id, region).map_err(invalid)?;
                edit.job.partition = place.partition;
                if let Some(claim) = &place.claim {
                    tx.claim_block(claim).await?;
                }
            }
            let backlog = write(tx, actor, action, &row, &edit).await?;
            if let Some(parents) = parents {
                tx.set_parents(&edit.job, &parents).await?;
            }
            let (cursor, effective_at) = (edit.cursor, Some(edit.effective_at));
            Edited { job: edit.job, cursor, effective_at, cancelled: Vec::new(), backlog }
        }
    };
    // An edit leaves open runs alone; only a pause or delete may cancel them.
    if ask.cancel && ends {
        let cancelled = cancel::cancel_open(tx, tenant, actor, edited.job.id).await?;
        edited.cancelled = cancelled.claimed;
        edited.backlog |= cancelled.backlog;
    }
    Ok(edited)
}

fn replaced(change: &Change) -> Option<&JobSpec> {
    match change {
        Change::Replace(spec) => Some(spec),
        Change::Pause { .. } | Change::Quarantine { .. } | Change::Resume | Change::Delete => None,
    }
}

async fn check_name<T: Tx + ?Sized>(tx: &mut T, row: &JobRow, change: &Change) -> Result<()> {
    let Some(spec) = replaced(change).filter(|spec| spec.name != row.job.spec.name) else { return Ok(()) };
    let names = std::slice::from_ref(&spec.name);
    match tx.names_taken(row.job.tenant, names).await?.is_empty() {
        true => Ok(()),
        false => Err(StoreError::NameTaken(spec.name.clone())),
    }
}

async fn locked<T: Tx + ?Sized>(tx: &mut T, row: &JobRow) -> Result<LockedJob> {
    let now = tx.now();
    let from = row.cursor.map_or(now, |cursor| cursor.min(now));
    let last_recorded = tx.last_recorded(row.job.id, from).await?.filter(|last| *last >= from);
    let open = count_open(tx, &row.job).await?;
    Ok(LockedJob { job: row.job.clone(), cursor: row.cursor, now, last_recorded, open, calendars: Vec::new() })
}

/// Writes the edit. Returns whether more runs wait than it moves; those are moved in the background.
async fn write<T: Tx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    action: &'static str,
    was: &JobRow,
    edit: &Edit,
) -> Result<bool> {
    let (job, tenant) = (&edit.job, was.job.tenant);
    let recorded = tx.insert_edited(was, edit).await?;
    facts::check_inserted(edit, &recorded, tx.doing())?;
    tx.insert_ranges(job.id, tenant, &edit.ranges).await?;
    tx.update_job(was, job).await?;
    let moves = job.spec.target.queue() != was.job.spec.target.queue() || job.partition != was.job.partition;
    let long = moves && tx.backlog_is_long(job.id).await?;
    if long {
        tx.mark_backlog(tenant, actor, job.id, BacklogAction::Move).await?;
    }
    tx.move_job(&was.job, job, long).await?;
    tx.set_cursor(job.id, edit.cursor).await?;
    tx.raise_epoch(job.id).await?;
    tx.notify_owners().await?;
    let detail = facts::edit_detail(action, &was.job, edit);
    audit_one(tx, tenant, actor, action, job.id.to_string(), detail).await?;
    Ok(long)
}
