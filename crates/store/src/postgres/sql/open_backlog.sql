-- Waiting runs of the jobs $1 that have many: of each up to the number in $2 of those between two attempts, and as many of those
-- never claimed; one that was handed to another node counts as claimed there. Indexes: waiting_tried, waiting_job. `runs` is left
-- out, as in open_waiting.sql.
select w.job, w.run as id, case when w.for_node is null then 0 else 1 end::smallint as state, w.attempts as attempt, 0::bigint as fence
  from unnest($1::uuid[], $2::bigint[]) as asked (job, most)
 cross join lateral (
        (select w.job, w.run, w.attempts, w.for_node from waiting w where w.job = asked.job and w.attempts > 0 limit asked.most)
         union all
        (select w.job, w.run, w.attempts, w.for_node from waiting w where w.job = asked.job and w.attempts = 0 limit asked.most)) w;
