-- Times are milliseconds since 1970. States and causes are codes of the domain. No statement here depends on a setting of the
-- session.

-- The only clock that decides about ticks and leases. It is rounded down, so that nothing is early. PostgreSQL inlines the
-- function into the calling statement.
create function everytick_now() returns bigint language sql volatile
    as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

create table tenants (
    id integer primary key,
    name text not null unique,
    -- The number of jobs that are not deleted, so that the quota needs no count. The row's lock serializes creates.
    jobs bigint not null default 0
) with (fillfactor = 50);
insert into tenants (id, name) values (1, 'default');

-- Numbers that must only rise, even after the rows that had them are deleted.
create table counters (
    name text primary key,
    value bigint not null
) with (fillfactor = 50);
insert into counters (name, value) values ('lease_fence', 0), ('zone_data', 0);

create table jobs (
    id uuid primary key,
    tenant integer not null,
    name text collate "C" not null,
    version bigint not null,
    created_at bigint not null,
    created_by text not null,
    updated_at bigint not null,
    paused_at bigint,
    pause_note text,
    deleted_at bigint,
    -- Copies of fields of the definition that lists filter by.
    enabled boolean not null,
    target text not null,
    labels jsonb not null,
    search text not null,
    spec text not null
);
create unique index jobs_name on jobs (tenant, name) where deleted_at is null;
create index jobs_deleted on jobs (deleted_at) where deleted_at is not null;

-- A narrow table that recording does not write: recording locks its rows, and an edit rewrites one. `seq` orders the changes:
-- the milliseconds of the clock, then a number. So a reader can read the changes of the last minute again.
create table epochs (
    job uuid primary key,
    tenant integer not null,
    partition smallint not null,
    epoch bigint not null,
    seq bigint not null,
    -- The job's partition before its home region changed. A node that polls that partition learns that the job has left.
    moved_from smallint
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
create index epochs_seq on epochs (seq);
create sequence changes_seq cache 1;

-- The lower bound of each job's next unrecorded tick; null when there are no more.
create table cursors (
    job uuid primary key,
    tenant integer not null,
    partition smallint not null,
    next_tick bigint
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index cursors_next on cursors (partition, next_tick, job) where next_tick is not null;

-- A tick is recorded if and only if the row with its id exists. There is one table per day, by the time at the beginning of the
-- id. No index has a column that a settlement changes, and the tables of the days keep free space in their pages. So a
-- settlement is a HOT update.
create table runs (
    id uuid not null,
    tenant integer not null,
    cause smallint not null,
    state smallint not null,
    job uuid not null,
    scheduled_at bigint not null,
    due_at bigint not null,
    fence bigint not null,
    started_at bigint,
    finished_at bigint,
    attempt integer not null,
    lost integer not null,
    skip_reason smallint,
    late boolean not null,
    force boolean not null,
    incarnation uuid,
    node text,
    error text,
    output text,
    payload text,
    constraint runs_pkey primary key (id),
    constraint runs_due check (due_at >= scheduled_at),
    constraint runs_claimed check ((state = 1) = (incarnation is not null)),
    constraint runs_finished check ((state >= 2) = (finished_at is not null)),
    constraint runs_skipped check ((state = 5) = (skip_reason is not null))
) partition by range (id);
create index runs_history on runs (job, id);

-- The last run of each job whose day has been dropped.
create table last_runs (like runs including constraints);
alter table last_runs add primary key (job);
create unique index last_runs_id on last_runs (id);
create index last_runs_tenant on last_runs (tenant, id);

-- Ticks that were skipped together, under the id of the first. `to_tick` is included.
create table skip_ranges (
    id uuid primary key,
    tenant integer not null,
    job uuid not null,
    from_tick bigint not null,
    to_tick bigint not null,
    count bigint not null,
    reason smallint not null,
    recorded_at bigint not null,
    constraint skip_ranges_order check (to_tick >= from_tick)
);
create index skip_ranges_history on skip_ranges (job, id);
create index skip_ranges_tenant on skip_ranges (tenant, id);

-- Runs that are not claimed. A run that is born claimed has no row here; a claim deletes the row.
create table waiting (
    run uuid primary key,
    job uuid not null,
    tenant integer not null,
    partition smallint not null,
    priority smallint not null,
    due_at bigint not null,
    late boolean not null,
    force boolean not null,
    attempts integer not null,
    constraint waiting_priority check (priority between 0 and 9)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index waiting_claim on waiting (late, priority desc, due_at, run);
-- Only late runs, by tenant, because late runs rotate between the tenants.
create index waiting_late on waiting (tenant, priority desc, due_at, run) where late;
create index waiting_due on waiting (due_at);
create index waiting_job on waiting (job);

-- Attempts that ended without ending their run. The run's own row has the last attempt.
create table attempts (
    run uuid not null,
    attempt integer not null,
    fence bigint not null,
    node text,
    started_at bigint,
    finished_at bigint,
    outcome text not null,
    error text,
    output text,
    primary key (run, attempt)
);

-- One row per incarnation of a node. The id of a claimed run is at or above its lease's `open_from`; step 7 adds `open_claims` for
-- the others. A statement that writes under a lease share-locks its row, so an update of the fence waits for such statements.
create table leases (
    incarnation uuid primary key,
    node text not null,
    fence bigint not null,
    until bigint not null,
    open_from uuid not null,
    ended boolean not null,
    region text,
    version text not null,
    started_at bigint not null,
    renewed_at bigint not null,
    -- Whether partitions may be assigned to this node.
    holds boolean not null default true,
    lag_ms bigint not null default 0,
    clock_offset_ms bigint not null default 0
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

create table partitions (
    partition smallint primary key,
    holder uuid,
    fence bigint not null,
    since bigint not null,
    -- The home region of the block of 16 partitions. The first job with this home region claims the block for good.
    home_region text
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
insert into partitions (partition, fence, since) select p, 0, 0 from generate_series(0, 255) as p;

-- The requests with an Idempotency-Key, and what each created.
create table requests (
    tenant integer not null,
    key text not null,
    fingerprint bytea not null,
    kind text not null,
    subject uuid not null,
    created_at bigint not null,
    primary key (tenant, key)
);
create index requests_created on requests (created_at);

create table audit (
    id bigint generated always as identity primary key,
    tenant integer not null,
    at bigint not null,
    actor text not null,
    action text not null,
    subject text not null,
    detail text not null
);
create index audit_tenant on audit (tenant, id);
