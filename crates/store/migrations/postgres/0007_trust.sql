-- Step 7: changes that keep one row, job, node or client from stopping the others. Each part below names its reason.

-- Failed runs, so that a list of them reads no others: one failure among a million successes is found at once. Written by
-- the settlement that fails a run for good, removed with the run. `error_hash` groups equal errors; null for older runs.
create table failures (
    tenant integer not null,
    run uuid not null,
    job uuid not null,
    error_hash bigint,
    primary key (tenant, run)
);
create index failures_job on failures (job, run);
insert into failures (tenant, run, job) select tenant, id, job from runs where state = 3;
-- Claims of runs whose ids are older than about a minute. Without this table, one run that stays open for hours made every
-- search for claims read all runs from its id on. A claim on a young run is not
-- listed: its id is at or above its lease's `open_from`.
create table open_claims (
    run uuid not null primary key,
    job uuid not null,
    tenant integer not null,
    incarnation uuid not null,
    fence bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index open_claims_job on open_claims (job);
create index open_claims_incarnation on open_claims (incarnation, run);
-- Whether the node reads open_claims. While a node of an earlier release lives, each `open_from` stays at or below every claim.
alter table leases add column lists_claims boolean not null default false;
-- All claims of the lease below this id are listed, or were made later and are known to their node. A renewal raises `open_from`
-- to this id.
alter table leases add column compared_to uuid;
-- The process behind a lease: a second process that starts under the name of a living node is refused, and the message names
-- this one. `process` distinguishes it from a later process with the same number. Null for nodes of the previous release.
alter table leases add column host text;
alter table leases add column pid bigint;
alter table leases add column process text;

-- What a node can deliver by its settings, as JSON. A run that the owner of its partition cannot deliver goes to a node that
-- can. Null for nodes of the previous release, which get no such runs.
alter table leases add column can text;
-- The incarnation to which the owner of the partition has delegated a waiting run. The run counts as in progress, and only that
-- node claims it.
alter table waiting add column for_node uuid;
create index waiting_for_node on waiting (for_node, due_at) where for_node is not null;

-- The addresses on which a node serves its API. No node sends webhooks to them. Null for nodes of the previous release.
alter table leases add column listen text;

-- How long a lease lasts without a renewal. A lease that ends later than that was renewed while the clock was ahead, and is
-- shortened. Otherwise a dead node would count as alive until the clock reaches that end. Null for nodes of the previous release.
alter table leases add column ttl_ms bigint;

-- The version of the zone data, if the job was planned again for newer data; otherwise 0. Nodes with older data do not raise its
-- cursor, because it could pass a tick that only the newer data has.
alter table epochs add column zone_data bigint not null default 0;

-- The first instant, in milliseconds, whose day is not being dropped. Pruning raises it before it checks the days before it. A
-- redrive locks the row and creates no run in those days, so an acknowledged run is never dropped with its day. A node of the
-- previous release does not read it, so pruning checks a day again after detaching it.
insert into counters (name, value) values ('days_closed', 0);
-- Runs that wait between two attempts, by job. They count as in progress. Without this index, finding them read all waiting runs
-- of the job.
create index waiting_tried on waiting (job) where attempts > 0;

-- Backlogs that are too long for one transaction. A cancel or an edit marks the runs of the job whose `waiting.lot` is at most
-- `up_to`. Marked runs are not claimed. They are cancelled (action 1), or moved to the job's current target (action 2), in batches.
-- While a cancel waits for claims that began before its mark, `up_to` is the highest bigint. Lots must only rise, so the sequence
-- must not be cached. Rows from before this step have lot 0.
create sequence waiting_lots cache 1;
alter table waiting add column lot bigint not null default 0;
alter table waiting alter column lot set default nextval('waiting_lots');
create table backlog_work (
    job uuid not null,
    action smallint not null,
    tenant integer not null,
    up_to bigint not null,
    done bigint not null default 0,
    created_at bigint not null,
    worked_at bigint not null,
    actor text not null,
    primary key (job, action),
    constraint backlog_work_action check (action in (1, 2))
);

-- Rows of other tables that a node could not decode: damaged rows, and rows of a later release. Nodes skip them. A node writes a
-- note when it reads such a row; a note that is not renewed for a day is removed. `relation` is the table, `key` the row's key.
create table unreadable (
    relation text not null,
    key text not null,
    error text not null,
    seen_at bigint not null,
    primary key (relation, key)
);
create index unreadable_seen on unreadable (seen_at);
