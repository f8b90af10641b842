-- Runs for past ticks, on request. Nodes of the previous release deliver such runs, but create none.

create table backfills (
    id uuid primary key,
    tenant integer not null,
    job uuid not null,
    from_at bigint not null,
    to_at bigint not null,
    newest_first boolean not null,
    rate_count integer,
    rate_ms bigint,
    -- The time up to which created runs have used the rate, in microseconds.
    spent_until bigint not null default 0,
    payload text,
    total integer not null,
    -- How many of the ticks have a run.
    position integer not null default 0,
    -- The ended runs that were counted, by how they ended.
    succeeded integer not null default 0,
    failed integer not null default 0,
    cancelled integer not null default 0,
    state smallint not null default 0,
    -- Whether a node must advance it: runs remain to be created, or some have not ended.
    active boolean not null default true,
    created_at bigint not null,
    created_by text not null,
    finished_at bigint,
    -- Why it was ended early.
    note text,
    -- The ticks, eight bytes each, in the order in which they get runs.
    ticks bytea not null,
    constraint backfills_rate check ((rate_count is null) = (rate_ms is null)),
    constraint backfills_position check (position <= total),
    constraint backfills_finished check ((state = 0) = (finished_at is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index backfills_job on backfills (job, id);
create index backfills_active on backfills (job, id) where active;
create index backfills_over on backfills (finished_at) where not active;

-- The runs of backfills that are not known to have ended. Each backfill has few of them.
create table backfill_runs (
    run uuid primary key,
    backfill uuid not null
);
create index backfill_runs_of on backfill_runs (backfill);
