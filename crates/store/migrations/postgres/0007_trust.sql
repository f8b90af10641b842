-- Step 7: what keeps one row, job, node or client from stopping the others. Each part below names its reason.

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
-- search for claims read all runs from its id on. A claim of a young run is not listed: it lies at or above its lease's `open_from`.
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
-- All claims of the lease below this id are listed, or were made later and are known to their node. A renewal raises `open_from` to it.
alter table leases add column compared_to uuid;
-- The process behind a lease: a second process that starts under the name of a living node is refused, and the message names
-- this one. `process` tells it from a later process with the same number. Null for nodes of the release before.
alter table leases add column host text;
alter table leases add column pid bigint;
alter table leases add column process text;

-- What a node can deliver by its settings, as JSON. A run that the owner of its partition cannot deliver goes to a node that
-- can. Null for nodes of the release before, which get no such runs.
alter table leases add column can text;
-- The incarnation that the owner of the partition handed a waiting run to; it counts as in progress, and only that node claims it.
alter table waiting add column for_node uuid;
create index waiting_for_node on waiting (for_node, due_at) where for_node is not null;

-- Where a node answers its API: no webhook of any node goes there. Null for nodes of the release before.
alter table leases add column listen text;

-- How long a lease lives without a renewal. A lease that ends further ahead than this was made while the clock was wrong, and is
-- shortened; else a node that died then would count as alive until the clock gets there. Null: a node of the release before.
alter table leases add column ttl_ms bigint;

-- The zone data that a job was planned with last, where that was planned anew for newer data: nodes with older data no longer
-- raise its cursor, which could pass a tick that only the newer data knows. 0: never.
alter table epochs add column zone_data bigint not null default 0;

-- The first instant, in milliseconds, whose day is not being dropped. Pruning raises it before it looks at the days before it; a
-- redrive locks the row and makes no run in those days, so a run that was answered never goes with its day. A node of the release
-- before does not look here: pruning looks at a day again when it is detached.
insert into counters (name, value) values ('days_closed', 0);
-- Runs that wait between two attempts, by job: they count as in progress, and among a million waiting runs of one job they were
-- found by reading all of them.
create index waiting_tried on waiting (job) where attempts > 0;

-- A backlog too long for one transaction: a cancel or an edit marks the job, no marked run is claimed any more, and the marked
-- runs are cancelled (action 1) or moved to where the job stands now (action 2) in batches. Marked are the runs of the job whose
-- `waiting.lot` is at most `up_to`, which is the highest bigint while a cancel waits for claims that began before its mark. Lots only rise, so the sequence must not be cached. Rows of before this step have 0.
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

-- Rows of other tables that a node could not decode: damaged ones, and those of a later release. They are skipped. A node notes
-- each here when it meets it; notes that are not renewed for a day go. `relation` is the table, `key` the row's key as text.
create table unreadable (
    relation text not null,
    key text not null,
    error text not null,
    seen_at bigint not null,
    primary key (relation, key)
);
create index unreadable_seen on unreadable (seen_at);
