-- Waiting runs of the jobs $1, of each up to the number in $2; one that was handed to another node counts as claimed there.
-- Index: waiting_job. `lateral` and `limit` keep a backlog of millions as cheap as a short one. `runs` is left out: the planner
-- takes an unknown limit for a tenth of the rows, and would read all of it.
select w.job, w.run as id, case when w.for_node is null then 0 else 1 end::smallint as state, w.attempts as attempt, 0::bigint as fence
  from unnest($1::uuid[], $2::bigint[]) as asked (job, most)
 cross join lateral (select w.job, w.run, w.attempts, w.for_node from waiting w where w.job = asked.job limit asked.most) w;
