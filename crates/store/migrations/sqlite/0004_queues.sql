-- Pull queues: which runs wait for workers, what workers hold, and what an operator allows of a queue.

alter table epochs add column queue text;
create index epochs_queue on epochs (tenant, queue) where queue is not null;

-- `rank` orders a queue: the instant since which the run waits, less what its priority is worth.
alter table waiting add column queue text;
alter table waiting add column rank integer;
alter table waiting add column key text;
-- A backlog of one kind costs the other nothing: each has indexes of its own.
drop index waiting_claim;
drop index waiting_late;
drop index waiting_due;
create index waiting_claim on waiting (late, priority desc, due_at, run) where queue is null;
create index waiting_late on waiting (tenant, priority desc, due_at, run) where late = 1 and queue is null;
create index waiting_due on waiting (due_at) where queue is null;
create index waiting_queue on waiting (tenant, queue, rank, run) where queue is not null;
create index waiting_queue_due on waiting (tenant, queue, due_at) where queue is not null;

alter table runs add column worker text;
alter table attempts add column worker text;

-- Runs that workers hold, each under a lease of its own. Written by the claim, removed by the settlement. The run's row bears
-- the nil incarnation while it stands here.
create table worker_claims (
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
create index worker_claims_job on worker_claims (job);
create index worker_claims_queue on worker_claims (tenant, queue);
create index worker_claims_previous on worker_claims (job) where previous = 1;

-- Queues that are limited.
create table queues (
    tenant integer not null,
    name text not null,
    concurrency integer,
    rate_count integer,
    rate_ms integer,
    -- Microseconds: the time that the rate has spent on what was handed out.
    spent_until integer not null default 0,
    primary key (tenant, name)
) strict, without rowid;
