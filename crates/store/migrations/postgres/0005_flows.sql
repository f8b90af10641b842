-- Jobs that follow other jobs. Nodes of the release before leave no steps: let a whole cluster have this release before jobs with
-- parents are made.

-- The edges of live jobs, written with the child's definition under the tenant's lock.
create table job_parents (
    tenant integer not null,
    child uuid not null,
    parent uuid not null,
    when_ended smallint not null,
    primary key (child, parent)
);
create index job_parents_parent on job_parents (parent);

-- A flow is made when its root has ended. Its graph stays as it was then. Whoever advances it holds the row.
create table flows (
    id uuid primary key,
    tenant integer not null,
    opened_at bigint not null,
    scheduled_at bigint not null,
    rerun_of uuid,
    cancelled_at bigint,
    graph text not null
);

-- Ends of runs that flows have not taken in yet. Written by whatever ends the run, removed by the advance.
create table flow_steps (
    run uuid primary key,
    flow uuid not null,
    tenant integer not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index flow_steps_flow on flow_steps (flow);

alter table runs add column flow uuid;
alter table last_runs add column flow uuid;
