-- Finds the oldest run whose day table the target needs. Primary keys: jobs, cursors. Index: runs_history.
-- A run needs no day table if it is the last run of a live job, has ended, and the job's cursor has passed it (cause 1: a tick).
-- Scans runs from the oldest on until it finds one.
select r.id
  from runs r
  left join jobs j on j.id = r.job
  left join cursors c on c.job = r.job
 where r.finished_at is null
    or j.id is null
    or j.deleted_at is not null
    or (r.cause = 1 and r.scheduled_at >= c.next_tick)
    or exists (select 1 from runs n where n.job = r.job and n.id > r.id)
 order by r.id
 limit 1;
