-- Step 7: what keeps one row, job, node or client from stopping the others. Each part below names its reason.

-- Failed runs, so that a list of them reads no others: one failure among a million successes is found at once. Written by
-- the settlement that fails a run for good, removed with the run. `error_hash` groups equal errors; null for older runs.
create table failures (
    tenant integer not null,
    run blob not null,
    job blob not null,
    error_hash integer,
    primary key (tenant, run)
) strict, without rowid;
create index failures_job on failures (job, run);
insert into failures (tenant, run, job) select tenant, id, job from runs where state = 3;
-- Claims of runs whose ids are older than about a minute. Without this table, one run that stays open for hours made every
-- search for claims read all runs from its id on. A claim of a young run is not listed: it lies at or above its lease's `open_from`.
create table open_claims (
    run blob not null primary key,
    job blob not null,
    tenant integer not null,
    incarnation blob not null,
    fence integer not null
) strict, without rowid;
create index open_claims_job on open_claims (job);
create index open_claims_incarnation on open_claims (incarnation, run);
-- All claims of the lease below this id are listed, or were made later and are known to their node. A renewal raises `open_from` to it.
alter table leases add column compared_to blob;
-- The process behind a lease: a second process that starts under the name of a living node is refused, and the message names
-- this one. `process` tells it from a later process with the same number. Null for nodes of the release before.
alter table leases add column host text;
alter table leases add column pid integer;
alter table leases add column process text;

-- What a node can deliver by its settings, as JSON. A run that the owner of its partition cannot deliver goes to a node that
-- can. Null for nodes of the release before, which get no such runs.
alter table leases add column can text;

-- Where a node answers its API: no webhook of any node goes there. Null for nodes of the release before.
alter table leases add column listen text;
-- Runs that wait between two attempts, by job: they count as in progress, and among a million waiting runs of one job they were
-- found by reading all of them.
create index waiting_tried on waiting (job) where attempts > 0;

-- Rows of other tables that a node could not decode: damaged ones, and those of a later release. They are skipped. A node notes
-- each here when it meets it; notes that are not renewed for a day go. `relation` is the table, `key` the row's key as text.
create table unreadable (
    relation text not null,
    key text not null,
    error text not null,
    seen_at integer not null,
    primary key (relation, key)
) strict, without rowid;
create index unreadable_seen on unreadable (seen_at);
