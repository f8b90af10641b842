-- Removes up to $3 runs that ended before $1 and have ids below $2.
-- Primary keys: runs, waiting, worker_claims, open_claims, jobs, cursors. Indexes: runs_history, flow_steps_flow.
-- Keeps open runs (state below 2), the last run of a live job, ticks (cause 1) that their job's cursor has not passed (I17), runs
-- that another session has locked, and runs of a flow in progress: a flow with steps or an open run.
-- Runs of a flow have the time of the flow's id in theirs. The flows in progress are found once, from the few open runs (claimed
-- is state 1) with ids below $2: reading the runs of one instant for each run is quadratic if many flows share the instant.
with open as (
    select run from waiting where run < $2
     union all
    select run from worker_claims where run < $2
     union all
    select run from open_claims where run < $2
     union all
    select id from runs where id >= (select open_from from leases order by open_from limit 1) and id < $2 and state = 1
), going as materialized (
    select coalesce(r.flow, r.id) as flow
      from open o
     cross join lateral (select flow, id from runs where id = o.run and state < 2 limit 1) r
)
delete from runs where id in (
    select r.id
      from runs r
      left join jobs j on j.id = r.job
      left join cursors c on c.job = r.job
     where r.id < $2 and r.finished_at < $1
       and (r.cause <> 1 or c.next_tick is null or r.scheduled_at < c.next_tick)
       and (j.id is null or j.deleted_at is not null
            or exists (select 1 from runs n where n.job = r.job and n.id > r.id))
       and not exists (select 1 from flow_steps s where s.flow = coalesce(r.flow, r.id))
       and coalesce(r.flow, r.id) not in (select flow from going)
     order by r.id
     limit $3
       for update of r skip locked)
   and id < $2
returning id;
