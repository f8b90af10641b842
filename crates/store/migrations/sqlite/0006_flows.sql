-- Jobs that follow other jobs.

-- The edges of live jobs, written with the child's definition.
create table job_parents (
    tenant integer not null,
    child blob not null,
    parent blob not null,
    when_ended integer not null,
    primary key (child, parent)
) strict, without rowid;
create index job_parents_parent on job_parents (parent);

-- A flow is made when its root has ended. Its graph stays as it was then.
create table flows (
    id blob not null primary key,
    tenant integer not null,
    opened_at integer not null,
    scheduled_at integer not null,
    rerun_of blob,
    cancelled_at integer,
    graph text not null
) strict, without rowid;

-- Ends of runs that flows have not taken in yet. Written by whatever ends the run, removed by the advance.
create table flow_steps (
    run blob not null primary key,
    flow blob not null,
    tenant integer not null
) strict, without rowid;
create index flow_steps_flow on flow_steps (flow);

alter table runs add column flow blob;
