-- Step 8: what a new user needs on the first day.

-- When a worker last asked for runs of a queue, so that an explanation can name a queue without workers. Each node writes it at
-- most once in a few seconds per queue. Rows that are older than the history are pruned.
create table queue_asks (
    tenant integer not null,
    queue text collate "C" not null,
    asked_at bigint not null,
    worker text not null,
    primary key (tenant, queue)
);
create index queue_asks_asked on queue_asks (asked_at);
