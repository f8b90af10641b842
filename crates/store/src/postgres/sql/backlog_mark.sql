-- Marks, at $4 and by $5, all that waits of job $1 of tenant $2 for action $3. The job is locked, so that no run of it begins to
-- wait meanwhile: each later one gets a higher lot. Key: backlog_work.
insert into backlog_work (job, action, tenant, up_to, created_at, worked_at, actor)
values ($1, $3, $2, nextval('waiting_lots'), $4, $4, $5)
on conflict (job, action) do update set up_to = excluded.up_to, actor = excluded.actor;
