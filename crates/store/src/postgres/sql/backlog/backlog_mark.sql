-- Marks all waiting runs of job $1 for action $3 (1 cancel, 2 move). Primary key: backlog_work. The caller has locked the job.
-- $2 tenant, $4 time, $5 actor. A move marks the lots up to now: a run that begins to wait later gets a higher lot.
-- A cancel marks every lot (the highest bigint) until backlog_bound.sql sets the bound.
insert into backlog_work (job, action, tenant, up_to, created_at, worked_at, actor)
values ($1, $3, $2, case when $3::smallint = 1 then 9223372036854775807 else nextval('waiting_lots') end, $4, $4, $5)
on conflict (job, action) do update set up_to = excluded.up_to, actor = excluded.actor;
