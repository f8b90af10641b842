-- Ids are 16-byte blobs, times are milliseconds since 1970, states and causes are the domain's codes.

create table tenants (
    id integer primary key,
    name text not null unique,
    -- How many jobs it has that are not deleted, so that the quota costs no count.
    jobs integer not null default 0
) strict;
insert into tenants (id, name) values (1, 'default');

-- Numbers that must rise even when the rows that bore them are gone.
create table counters (
    name text not null primary key,
    value integer not null
) strict, without rowid;
insert into counters (name, value) values ('change', 0), ('lease_fence', 0), ('zone_data', 0);

create table jobs (
    id blob not null primary key,
    tenant integer not null,
    name text not null,
    version integer not null,
    created_at integer not null,
    created_by text not null,
    updated_at integer not null,
    paused_at integer,
    pause_note text,
    deleted_at integer,
    spec text not null
) strict, without rowid;
create unique index jobs_name on jobs (tenant, name) where deleted_at is null;
create index jobs_deleted on jobs (deleted_at) where deleted_at is not null;

-- Narrow, and not written by ticks. `seq` numbers the changes, for those who poll them.
create table epochs (
    job blob not null primary key,
    tenant integer not null,
    partition integer not null,
    epoch integer not null,
    seq integer not null
) strict, without rowid;
create index epochs_seq on epochs (seq);

-- The lower bound of each job's next unrecorded tick; null when there are no more.
create table cursors (
    job blob not null primary key,
    tenant integer not null,
    partition integer not null,
    next_tick integer
) strict, without rowid;
create index cursors_next on cursors (partition, next_tick, job) where next_tick is not null;

-- A tick is recorded if and only if the row under its id exists. No index names a column that settling changes.
create table runs (
    id blob not null primary key,
    tenant integer not null,
    job blob not null,
    cause integer not null,
    scheduled_at integer not null,
    due_at integer not null,
    state integer not null,
    late integer not null,
    force integer not null,
    attempt integer not null,
    lost integer not null,
    fence integer not null,
    node text,
    incarnation blob,
    started_at integer,
    finished_at integer,
    skip_reason integer,
    error text,
    output text,
    payload text,
    check (due_at >= scheduled_at),
    check ((state = 1) = (incarnation is not null)),
    check ((state >= 2) = (finished_at is not null)),
    check ((state = 5) = (skip_reason is not null))
) strict, without rowid;
create index runs_history on runs (job, id);

-- Ticks that were skipped together, under the id of the first. `to_tick` is included.
create table skip_ranges (
    id blob not null primary key,
    tenant integer not null,
    job blob not null,
    from_tick integer not null,
    to_tick integer not null,
    count integer not null,
    reason integer not null,
    recorded_at integer not null,
    check (to_tick >= from_tick)
) strict, without rowid;
create index skip_ranges_history on skip_ranges (job, id);

-- Runs that nobody has claimed. A run born claimed never stands here; a claim deletes the row.
create table waiting (
    run blob not null primary key,
    job blob not null,
    tenant integer not null,
    partition integer not null,
    priority integer not null,
    due_at integer not null,
    late integer not null,
    force integer not null,
    attempts integer not null,
    check (priority between 0 and 9)
) strict, without rowid;
create index waiting_claim on waiting (late, priority desc, due_at, run);
create index waiting_due on waiting (due_at);
create index waiting_job on waiting (job);

-- Attempts that ended without ending their run. The last or only one stands in the run's own row.
create table attempts (
    run blob not null,
    attempt integer not null,
    fence integer not null,
    node text,
    started_at integer,
    finished_at integer,
    outcome text not null,
    error text,
    output text,
    primary key (run, attempt)
) strict, without rowid;

-- One row per incarnation of a node. Every claimed run has an id from its lease's `open_from` on.
create table leases (
    incarnation blob not null primary key,
    node text not null,
    fence integer not null,
    until integer not null,
    open_from blob not null,
    ended integer not null
) strict, without rowid;

-- What was asked under an Idempotency-Key, and what came of it.
create table requests (
    tenant integer not null,
    key text not null,
    fingerprint blob not null,
    kind text not null,
    subject blob not null,
    created_at integer not null,
    primary key (tenant, key)
) strict, without rowid;
create index requests_created on requests (created_at);

create table audit (
    id integer primary key autoincrement,
    tenant integer not null,
    at integer not null,
    actor text not null,
    action text not null,
    subject text not null,
    detail text not null
) strict;
create index audit_tenant on audit (tenant, id);
