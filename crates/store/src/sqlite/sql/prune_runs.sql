-- Removes up to ?3 runs that ended before ?1, whose ids lie before ?2. Not open ones, not a live job's last, not a tick that
-- its job's cursor has not passed, not one of a flow that goes on: it has steps, or an open run. Runs of a flow have the time of
-- its id in theirs. The flows that go on are found once, from the few open runs with ids before ?2: reading the runs of one
-- instant for each run is quadratic where many flows have it. Keys: runs, waiting, worker_claims, open_claims, jobs, cursors;
-- indexes: runs_history, flow_steps_flow.
with open(run) as (
    select run from waiting where run < ?2
     union all
    select run from worker_claims where run < ?2
     union all
    select run from open_claims where run < ?2
     union all
    select id from runs where id >= (select min(open_from) from leases) and id < ?2 and state = 1
), going(flow) as materialized (
    select coalesce(r.flow, r.id) from open o cross join runs r on r.id = o.run where r.state < 2
)
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
       and coalesce(r.flow, r.id) not in (select flow from going)
     order by r.id
     limit ?3)
returning id;
