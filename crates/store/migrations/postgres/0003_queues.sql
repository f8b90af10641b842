-- Pull queues: the runs that wait for workers, the claims of workers, and the limits of a queue. Nodes of the previous release
-- do not know them: they skip jobs with a queue, because they cannot decode them.

-- What a claim must know before it has read the job: the queue of its runs, and whether the claim must check the job's other
-- runs (`guarded`). Written with the definition, under the job's lock.
alter table epochs add column queue text collate "C", add column guarded boolean not null default false;
create index epochs_queue on epochs (tenant, queue) where queue is not null;

-- `rank` orders a queue: the instant since which the run waits, minus the lead of its priority.
alter table waiting add column queue text collate "C", add column rank bigint, add column key text,
    add constraint waiting_ranked check ((queue is null) = (rank is null));
-- Runs with and without a queue have separate indexes, so a backlog of one kind does not slow down the other.
drop index waiting_claim;
drop index waiting_late;
drop index waiting_due;
create index waiting_claim on waiting (late, priority desc, due_at, run) where queue is null;
create index waiting_late on waiting (tenant, priority desc, due_at, run) where late and queue is null;
-- Only `next_due.sql` may use this index, to find the next due time. The expression keeps the planner from using it in searches for
-- runs that are due now.
create index waiting_due on waiting (due_at) where coalesce(queue, '') = '';
create index waiting_queue on waiting (tenant, queue, rank, run) where queue is not null;
create index waiting_queue_due on waiting (tenant, queue, due_at) where queue is not null;

alter table runs add column worker text;
alter table last_runs add column worker text;
alter table attempts add column worker text;

-- The claims of workers, each with its own lease. A claim inserts the row, and a settlement removes it. A heartbeat writes only
-- this row, and no column of an index. The run has the nil incarnation while it has a row here.
create table worker_claims (
    run uuid primary key,
    job uuid not null,
    tenant integer not null,
    queue text collate "C" not null,
    worker text not null,
    fence bigint not null,
    until bigint not null,
    timeout_at bigint not null,
    key text,
    log text,
    -- Whether the job had overlap `cancel_previous` at the claim.
    previous boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index worker_claims_job on worker_claims (job);
create index worker_claims_queue on worker_claims (tenant, queue);
create index worker_claims_previous on worker_claims (job) where previous;

-- Queues with limits. A claim from such a queue locks its row.
create table queues (
    tenant integer not null,
    name text collate "C" not null,
    concurrency integer,
    rate_count integer,
    rate_ms bigint,
    -- The time up to which claims have used the rate, in microseconds.
    spent_until bigint not null default 0,
    primary key (tenant, name),
    constraint queues_rate check ((rate_count is null) = (rate_ms is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
