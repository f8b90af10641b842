-- Step 13: tenants with a state, quotas and rules. `quotas` and `egress` are set by the operator of the installation,
-- `own_quotas` and `own_egress` by the tenant's admins; all are JSON.
alter table tenants add column state text not null default 'active';
-- What remains to be done in the background: pause, pause_and_cancel, resume or delete.
alter table tenants add column work text;
alter table tenants add column quotas text not null default '{}';
alter table tenants add column own_quotas text not null default '{}';
alter table tenants add column egress text not null default '{}';
alter table tenants add column own_egress text not null default '{}';
-- Whether jobs may run commands.
alter table tenants add column shell integer not null default 0;
alter table tenants add column created_at integer;
alter table tenants add column suspended_at integer;
update tenants set shell = 1 where id = 1;
create index tenants_work on tenants (id) where work is not null;

-- Jobs that the suspension of their tenant paused, or that its deletion removes.
create table tenant_jobs (
    tenant integer not null,
    job blob not null,
    primary key (tenant, job)
) strict, without rowid;
