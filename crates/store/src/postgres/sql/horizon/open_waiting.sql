-- Reads waiting runs of jobs. Arrays: $1 job, $2 limit. Index: waiting_job.
-- A run delegated to a node counts as claimed (state 1), others as waiting (state 0).
-- `lateral` and `limit` keep a backlog of millions as cheap as a short one.
-- Does not join `runs`: the planner assumes that an unknown limit returns a tenth of the rows, and would read all of `runs`.
select w.job, w.run as id, case when w.for_node is null then 0 else 1 end::smallint as state, w.attempts as attempt, 0::bigint as fence
  from unnest($1::uuid[], $2::bigint[]) as asked (job, most)
 cross join lateral (select w.job, w.run, w.attempts, w.for_node from waiting w where w.job = asked.job limit asked.most) w;
