-- Runs for past ticks, on request.

create table backfills (
    id blob not null primary key,
    tenant integer not null,
    job blob not null,
    from_at integer not null,
    to_at integer not null,
    newest_first integer not null,
    rate_count integer,
    rate_ms integer,
    -- Microseconds: the time that the rate has spent on the runs that were made.
    spent_until integer not null default 0,
    payload text,
    total integer not null,
    -- How many of them have their runs.
    position integer not null default 0,
    -- How those of its runs have ended that are over and were counted.
    succeeded integer not null default 0,
    failed integer not null default 0,
    cancelled integer not null default 0,
    state integer not null default 0,
    -- Somebody has to look after it: runs are to be made, or some that were made are not over.
    active integer not null default 1,
    created_at integer not null,
    created_by text not null,
    finished_at integer,
    -- Why it was ended before its time.
    note text,
    -- Eight bytes each, in the order in which they get their runs.
    ticks blob not null,
    check ((rate_count is null) = (rate_ms is null)),
    check (position <= total),
    check ((state = 0) = (finished_at is null))
) strict;
create index backfills_job on backfills (job, id);
create index backfills_active on backfills (job, id) where active = 1;
create index backfills_over on backfills (finished_at) where active = 0;

-- The runs of backfills that are not known to be over, few of each.
create table backfill_runs (
    run blob not null primary key,
    backfill blob not null
) strict, without rowid;
create index backfill_runs_of on backfill_runs (backfill);
