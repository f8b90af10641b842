-- What the migrations make. Written by the test that compares it; see tests/it/sqlite.rs.

CREATE TABLE attempts (
    run blob not null,
    attempt integer not null,
    fence integer not null,
    node text,
    started_at integer,
    finished_at integer,
    outcome text not null,
    error text,
    output text, worker text,
    primary key (run, attempt)
) strict, without rowid;

CREATE TABLE audit (
    id integer primary key autoincrement,
    tenant integer not null,
    at integer not null,
    actor text not null,
    action text not null,
    subject text not null,
    detail text not null
, actor_kind text, token_id blob, ip text, request_id text, result text not null default 'ok') strict;

CREATE INDEX audit_subject on audit (tenant, subject, id);

CREATE INDEX audit_tenant on audit (tenant, id);

CREATE TABLE backfill_runs (
    run blob not null primary key,
    backfill blob not null
) strict, without rowid;

CREATE INDEX backfill_runs_of on backfill_runs (backfill);

CREATE TABLE backfills (
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

CREATE INDEX backfills_active on backfills (job, id) where active = 1;

CREATE INDEX backfills_job on backfills (job, id);

CREATE INDEX backfills_over on backfills (finished_at) where active = 0;

CREATE TABLE backlog_work (
    job blob not null,
    action integer not null check (action in (1, 2)),
    tenant integer not null,
    up_to integer not null,
    done integer not null default 0,
    created_at integer not null,
    worked_at integer not null,
    actor text not null,
    primary key (job, action)
) strict, without rowid;

CREATE TABLE calendar_jobs (
    tenant integer not null,
    calendar text not null,
    job blob not null,
    primary key (tenant, calendar, job)
) strict, without rowid;

CREATE INDEX calendar_jobs_job on calendar_jobs (job);

CREATE TABLE calendar_versions (
    tenant integer not null,
    name text not null,
    version integer not null,
    valid_from integer not null,
    spec text not null,
    primary key (tenant, name, version)
) strict, without rowid;

CREATE TABLE calendars (
    tenant integer not null,
    name text not null,
    version integer not null,
    created_at integer not null,
    created_by text not null,
    updated_at integer not null,
    primary key (tenant, name)
) strict, without rowid;

CREATE TABLE counters (
    name text not null primary key,
    value integer not null
) strict, without rowid;

CREATE TABLE cursors (
    job blob not null primary key,
    tenant integer not null,
    partition integer not null,
    next_tick integer
) strict, without rowid;

CREATE INDEX cursors_next on cursors (partition, next_tick, job) where next_tick is not null;

CREATE TABLE epochs (
    job blob not null primary key,
    tenant integer not null,
    partition integer not null,
    epoch integer not null,
    seq integer not null
, queue text) strict, without rowid;

CREATE INDEX epochs_queue on epochs (tenant, queue) where queue is not null;

CREATE INDEX epochs_seq on epochs (seq);

CREATE TABLE failures (
    tenant integer not null,
    run blob not null,
    job blob not null,
    error_hash integer,
    primary key (tenant, run)
) strict, without rowid;

CREATE INDEX failures_job on failures (job, run);

CREATE TABLE flow_steps (
    run blob not null primary key,
    flow blob not null,
    tenant integer not null
) strict, without rowid;

CREATE INDEX flow_steps_flow on flow_steps (flow);

CREATE TABLE flows (
    id blob not null primary key,
    tenant integer not null,
    opened_at integer not null,
    scheduled_at integer not null,
    rerun_of blob,
    cancelled_at integer,
    graph text not null
) strict, without rowid;

CREATE TABLE gone_nodes (
    node text not null primary key,
    region text,
    version text not null,
    can text,
    started_at integer not null,
    renewed_at integer not null
) strict, without rowid;

CREATE TABLE job_parents (
    tenant integer not null,
    child blob not null,
    parent blob not null,
    when_ended integer not null,
    primary key (child, parent)
) strict, without rowid;

CREATE INDEX job_parents_parent on job_parents (parent);

CREATE TABLE jobs (
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

CREATE INDEX jobs_deleted on jobs (deleted_at) where deleted_at is not null;

CREATE UNIQUE INDEX jobs_name on jobs (tenant, name) where deleted_at is null;

CREATE TABLE keys (
    id text not null primary key,
    check_value blob not null,
    created_at integer not null
) strict, without rowid;

CREATE TABLE leases (
    incarnation blob not null primary key,
    node text not null,
    fence integer not null,
    until integer not null,
    open_from blob not null,
    ended integer not null
, region text, version text not null default '', started_at integer not null default 0, renewed_at integer not null default 0, holds integer not null default 1, lag_ms integer not null default 0, clock_offset_ms integer not null default 0, compared_to blob, host text, pid integer, process text, can text, listen text) strict, without rowid;

CREATE TABLE open_claims (
    run blob not null primary key,
    job blob not null,
    tenant integer not null,
    incarnation blob not null,
    fence integer not null
) strict, without rowid;

CREATE INDEX open_claims_incarnation on open_claims (incarnation, run);

CREATE INDEX open_claims_job on open_claims (job);

CREATE TABLE partitions (
    partition integer not null primary key,
    holder blob,
    fence integer not null default 0,
    since integer not null default 0
) strict;

CREATE TABLE queue_asks (
    tenant integer not null,
    queue text not null,
    asked_at integer not null,
    worker text not null,
    primary key (tenant, queue)
) strict, without rowid;

CREATE INDEX queue_asks_asked on queue_asks (asked_at);

CREATE TABLE queues (
    tenant integer not null,
    name text not null,
    concurrency integer,
    rate_count integer,
    rate_ms integer,
    -- Microseconds: the time that the rate has spent on what was handed out.
    spent_until integer not null default 0,
    primary key (tenant, name)
) strict, without rowid;

CREATE TABLE requests (
    tenant integer not null,
    key text not null,
    fingerprint blob not null,
    kind text not null,
    subject blob not null,
    created_at integer not null,
    primary key (tenant, key)
) strict, without rowid;

CREATE INDEX requests_created on requests (created_at);

CREATE TABLE runs (
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
    payload text, worker text, flow blob,
    check (due_at >= scheduled_at),
    check ((state = 1) = (incarnation is not null)),
    check ((state >= 2) = (finished_at is not null)),
    check ((state = 5) = (skip_reason is not null))
) strict, without rowid;

CREATE INDEX runs_history on runs (job, id);

CREATE TABLE secret_jobs (
    tenant integer not null,
    secret text not null,
    job blob not null,
    primary key (tenant, secret, job)
) strict, without rowid;

CREATE INDEX secret_jobs_job on secret_jobs (job);

CREATE TABLE secret_versions (
    tenant integer not null,
    name text not null,
    version integer not null,
    key_id text not null,
    wrapped_key blob not null,
    nonce blob not null,
    ciphertext blob not null,
    primary key (tenant, name, version)
) strict, without rowid;

CREATE INDEX secret_versions_key on secret_versions (key_id);

CREATE TABLE secrets (
    tenant integer not null,
    name text not null,
    version integer not null,
    hosts text not null, -- a JSON array
    kinds text not null, -- a JSON array
    description text not null,
    created_at integer not null,
    created_by text not null,
    updated_at integer not null,
    updated_by text not null,
    previous_until integer, -- until when the previous version signs too
    primary key (tenant, name)
) strict, without rowid;

CREATE TABLE settings (
    name text not null primary key,
    value text not null
) strict, without rowid;

CREATE TABLE skip_ranges (
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

CREATE INDEX skip_ranges_history on skip_ranges (job, id);

CREATE TABLE tenant_jobs (
    tenant integer not null,
    job blob not null,
    primary key (tenant, job)
) strict, without rowid;

CREATE TABLE tenants (
    id integer primary key,
    name text not null unique,
    -- How many jobs it has that are not deleted, so that the quota costs no count.
    jobs integer not null default 0
, state text not null default 'active', work text, quotas text not null default '{}', own_quotas text not null default '{}', egress text not null default '{}', own_egress text not null default '{}', shell integer not null default 0, created_at integer, suspended_at integer) strict;

CREATE INDEX tenants_work on tenants (id) where work is not null;

CREATE TABLE tokens (
    hash blob not null primary key,
    id blob not null,
    tenant integer,
    name text not null,
    prefix text not null,
    role text not null,
    scope text not null,
    allowed_ips text not null,
    created_at integer not null,
    created_by text not null,
    expires_at integer,
    last_used_at integer,
    last_used_ip text,
    revoked_at integer,
    rotated_from blob
) strict, without rowid;

CREATE UNIQUE INDEX tokens_id on tokens (id);

CREATE INDEX tokens_tenant on tokens (coalesce(tenant, 0), id);

CREATE TABLE unreadable (
    relation text not null,
    key text not null,
    error text not null,
    seen_at integer not null,
    primary key (relation, key)
) strict, without rowid;

CREATE INDEX unreadable_seen on unreadable (seen_at);

CREATE TABLE waiting (
    run blob not null primary key,
    job blob not null,
    tenant integer not null,
    partition integer not null,
    priority integer not null,
    due_at integer not null,
    late integer not null,
    force integer not null,
    attempts integer not null, queue text, rank integer, key text, lot integer not null default 0,
    check (priority between 0 and 9)
) strict, without rowid;

CREATE INDEX waiting_claim on waiting (late, priority desc, due_at, run) where queue is null;

CREATE INDEX waiting_due on waiting (due_at) where queue is null;

CREATE INDEX waiting_job on waiting (job);

CREATE INDEX waiting_late on waiting (tenant, priority desc, due_at, run) where late = 1 and queue is null;

CREATE INDEX waiting_queue on waiting (tenant, queue, rank, run) where queue is not null;

CREATE INDEX waiting_queue_due on waiting (tenant, queue, due_at) where queue is not null;

CREATE INDEX waiting_tried on waiting (job) where attempts > 0;

CREATE TABLE worker_claims (
    run blob not null primary key,
    job blob not null,
    tenant integer not null,
    queue text not null,
    worker text not null,
    fence integer not null,
    until integer not null,
    timeout_at integer not null,
    key text,
    log text,
    -- Whether the job was one that cancels what is older when it was claimed.
    previous integer not null default 0
) strict, without rowid;

CREATE INDEX worker_claims_job on worker_claims (job);

CREATE INDEX worker_claims_previous on worker_claims (job) where previous = 1;

CREATE INDEX worker_claims_queue on worker_claims (tenant, queue);
