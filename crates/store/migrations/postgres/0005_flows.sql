-- Jobs that follow other jobs. Nodes of the previous release write no steps, so upgrade all nodes of a cluster before you create
-- jobs with parents.

-- The edges of live jobs, written with the child's definition under the tenant's lock.
create table job_parents (
    tenant integer not null,
    child uuid not null,
    parent uuid not null,
    when_ended smallint not null,
    primary key (child, parent)
);
create index job_parents_parent on job_parents (parent);

-- A flow is created when its root has ended, with the graph of that moment. A transaction that advances the flow locks the row.
create table flows (
    id uuid primary key,
    tenant integer not null,
    opened_at bigint not null,
    scheduled_at bigint not null,
    rerun_of uuid,
    cancelled_at bigint,
    graph text not null
);

-- Ended runs that their flow has not processed. The transaction that ends the run inserts the row; an advance removes it.
create table flow_steps (
    run uuid primary key,
    flow uuid not null,
    tenant integer not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index flow_steps_flow on flow_steps (flow);

alter table runs add column flow uuid;
alter table last_runs add column flow uuid;
