-- Step 13: the tenant of attempts and of listed runs of backfills. Rows that exist belong to tenant 1 unless there are others.
alter table attempts add column tenant integer not null default 1;
update attempts set tenant = coalesce((select r.tenant from runs r where r.id = attempts.run), 1)
 where exists (select 1 from tenants where id <> 1);

alter table backfill_runs add column tenant integer not null default 1;
update backfill_runs set tenant = coalesce((select b.tenant from backfills b where b.id = backfill_runs.backfill), 1)
 where exists (select 1 from tenants where id <> 1);
