-- Runs for past ticks, on request. Nodes of the release before know of none of it: they deliver such runs and make none.

create table backfills (
    id uuid primary key,
    tenant integer not null,
    job uuid not null,
    from_at bigint not null,
    to_at bigint not null,
    newest_first boolean not null,
    rate_count integer,
    rate_ms bigint,
    -- Microseconds: the time that the rate has spent on the runs that were made.
    spent_until bigint not null default 0,
    payload text,
    total integer not null,
    -- How many of them have their runs.
    position integer not null default 0,
    -- How those of its runs have ended that are over and were counted.
    succeeded integer not null default 0,
    failed integer not null default 0,
    cancelled integer not null default 0,
    state smallint not null default 0,
    -- Somebody has to look after it: runs are to be made, or some that were made are not over.
    active boolean not null default true,
    created_at bigint not null,
    created_by text not null,
    finished_at bigint,
    -- Why it was ended before its time.
    note text,
    -- Eight bytes each, in the order in which they get their runs.
    ticks bytea not null,
    constraint backfills_rate check ((rate_count is null) = (rate_ms is null)),
    constraint backfills_position check (position <= total),
    constraint backfills_finished check ((state = 0) = (finished_at is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index backfills_job on backfills (job, id);
create index backfills_active on backfills (job, id) where active;
create index backfills_over on backfills (finished_at) where not active;

-- The runs of backfills that are not known to be over, few of each.
create table backfill_runs (
    run uuid primary key,
    backfill uuid not null
);
create index backfill_runs_of on backfill_runs (backfill);
