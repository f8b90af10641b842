-- Marks, at $4 and by $5, all that waits of job $1 of tenant $2 for action $3. The job is locked. For a move, each run that begins
-- to wait later gets a higher lot. For a cancel (1) every lot is marked until backlog_bound.sql sets the bound. Key: backlog_work.
insert into backlog_work (job, action, tenant, up_to, created_at, worked_at, actor)
values ($1, $3, $2, case when $3::smallint = 1 then 9223372036854775807 else nextval('waiting_lots') end, $4, $4, $5)
on conflict (job, action) do update set up_to = excluded.up_to, actor = excluded.actor;
