-- Removes up to ?3 runs that ended before ?1, whose ids lie before ?2. Not open ones, not a live job's last, not a tick that
-- its job's cursor has not passed, not one of a flow that goes on: it has steps, or an open run. Runs of a flow have the time of
-- its id in theirs, the first six bytes. Keys: runs, jobs, cursors, flows; indexes: runs_history, flow_steps_flow.
delete from runs where id in (
    select r.id
      from runs r
      left join jobs j on j.id = r.job
      left join cursors c on c.job = r.job
     where r.id < ?2 and r.finished_at < ?1
       and (r.cause <> 1 or c.next_tick is null or r.scheduled_at < c.next_tick)
       and (j.id is null or j.deleted_at is not null
            or exists (select 1 from runs n indexed by runs_history where n.job = r.job and n.id > r.id))
       and not exists (select 1 from flow_steps s where s.flow = coalesce(r.flow, r.id))
       and not exists (select 1
                         from flows f
                        cross join runs o on o.id >= substr(f.id, 1, 6) and o.id < cast(substr(f.id, 1, 6) || x'ff' as blob)
                        where f.id = coalesce(r.flow, r.id) and o.flow = f.id and o.state < 2)
     order by r.id
     limit ?3)
returning id;
