-- The first run that is not merely the last one of a live job, ended and passed by its cursor: its day is needed.
-- Scans runs from the oldest until there is one. Keys: jobs, cursors; index: runs_history.
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
