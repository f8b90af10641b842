-- Step 12: tenants with a state, quotas and rules. `quotas` and `egress` are set by the operator of the installation,
-- `own_quotas` and `own_egress` by the tenant's admins; all are JSON. A node of an earlier release checks none of them: the first
-- tenant is refused while one is alive, and from the first tenant on none can start.
alter table tenants add column state text not null default 'active';
-- What remains to be done in the background: pause, pause_and_cancel, resume or delete.
alter table tenants add column work text;
alter table tenants add column quotas text not null default '{}';
alter table tenants add column own_quotas text not null default '{}';
alter table tenants add column egress text not null default '{}';
alter table tenants add column own_egress text not null default '{}';
-- Whether jobs may run commands.
alter table tenants add column shell boolean not null default false;
alter table tenants add column created_at bigint;
alter table tenants add column suspended_at bigint;
update tenants set shell = true where id = 1;
create index tenants_work on tenants (id) where work is not null;
-- Lists go by name in this order.
create unique index tenants_named on tenants (name collate "C");

-- Jobs that the suspension of their tenant paused, or that its deletion removes.
create table tenant_jobs (
    tenant integer not null,
    job uuid not null,
    primary key (tenant, job)
);

-- Whether the node checks the states and rules of tenants. False for nodes of earlier releases.
alter table leases add column knows_tenants boolean not null default false;
