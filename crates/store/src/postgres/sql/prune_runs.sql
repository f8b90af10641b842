-- Removes up to $3 runs that ended before $1, whose ids lie before $2. Not open ones, not a live job's last, not a tick that
-- its job's cursor has not passed. Keys: runs, jobs, cursors; index: runs_history.
delete from runs where id in (
    select r.id
      from runs r
      left join jobs j on j.id = r.job
      left join cursors c on c.job = r.job
     where r.id < $2 and r.finished_at < $1
       and (r.cause <> 1 or c.next_tick is null or r.scheduled_at < c.next_tick)
       and (j.id is null or j.deleted_at is not null
            or exists (select 1 from runs n where n.job = r.job and n.id > r.id))
     order by r.id
     limit $3)
   and id < $2
returning id;
