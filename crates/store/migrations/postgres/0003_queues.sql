-- Pull queues: which runs wait for workers, what workers hold, and what an operator allows of a queue. Nodes of the release
-- before know of none of it: they leave jobs with a queue alone, because they cannot read them.

-- What a claim must know before it has read the job: in which queue its runs wait, and whether its other runs are to be
-- looked at. Written with the definition, under the job's lock.
alter table epochs add column queue text collate "C", add column guarded boolean not null default false;
create index epochs_queue on epochs (tenant, queue) where queue is not null;

-- `rank` orders a queue: the instant since which the run waits, less what its priority is worth.
alter table waiting add column queue text collate "C", add column rank bigint, add column key text,
    add constraint waiting_ranked check ((queue is null) = (rank is null));
-- A backlog of one kind costs the other nothing: each has indexes of its own.
drop index waiting_claim;
drop index waiting_late;
drop index waiting_due;
create index waiting_claim on waiting (late, priority desc, due_at, run) where queue is null;
create index waiting_late on waiting (tenant, priority desc, due_at, run) where late and queue is null;
-- Only for the next one that is due; what is due now must not be found by it, so nothing but `next_due.sql` writes it this way.
create index waiting_due on waiting (due_at) where coalesce(queue, '') = '';
create index waiting_queue on waiting (tenant, queue, rank, run) where queue is not null;
create index waiting_queue_due on waiting (tenant, queue, due_at) where queue is not null;

alter table runs add column worker text;
alter table last_runs add column worker text;
alter table attempts add column worker text;

-- Runs that workers hold, each under a lease of its own. Written by the claim, removed by the settlement; beats touch nothing
-- else. No index names what a beat changes. The run's row bears the nil incarnation while it stands here.
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
    -- Whether the job was one that cancels what is older when it was claimed.
    previous boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index worker_claims_job on worker_claims (job);
create index worker_claims_queue on worker_claims (tenant, queue);
create index worker_claims_previous on worker_claims (job) where previous;

-- Queues that are limited. Whoever claims from one holds its row.
create table queues (
    tenant integer not null,
    name text collate "C" not null,
    concurrency integer,
    rate_count integer,
    rate_ms bigint,
    -- Microseconds: the time that the rate has spent on what was handed out.
    spent_until bigint not null default 0,
    primary key (tenant, name),
    constraint queues_rate check ((rate_count is null) = (rate_ms is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
