-- Reads waiting runs of jobs with long backlogs. Arrays: $1 job, $2 limit. Indexes: waiting_tried, waiting_job.
-- For each job up to the limit of runs between two attempts, and as many of runs never claimed.
-- A run delegated to a node counts as claimed (state 1), others as waiting (state 0).
-- Does not join `runs`, for the reason in open_waiting.sql.
select w.job, w.run as id, case when w.for_node is null then 0 else 1 end::smallint as state, w.attempts as attempt, 0::bigint as fence
  from unnest($1::uuid[], $2::bigint[]) as asked (job, most)
 cross join lateral (
        (select w.job, w.run, w.attempts, w.for_node from waiting w where w.job = asked.job and w.attempts > 0 limit asked.most)
         union all
        (select w.job, w.run, w.attempts, w.for_node from waiting w where w.job = asked.job and w.attempts = 0 limit asked.most)) w;
