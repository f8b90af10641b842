-- Step 10: long backlogs, which are cancelled or moved in the background. SQLite has one writer: while a transaction cancels
-- 100,000 waiting runs, no tick is recorded.

-- The number of marks so far when the run began to wait. A mark covers all numbers up to its own.
alter table waiting add column lot integer not null default 0;
insert into counters (name, value) values ('lot', 0);

-- The marks: action 1 cancels the waiting runs of the job up to lot `up_to`, action 2 moves them to the target of the job.
create table backlog_work (
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
