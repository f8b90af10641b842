-- Lists up to $7 runs that wait in queue $2 of tenant $1 and are due at $3, in order of rank after ($4 rank, $5 run).
-- Index: waiting_queue, which is in this order, so nothing is sorted.
-- Leaves out runs of the jobs $6 (sorted, see peek_waiting.sql), unless they are forced or between two attempts;
-- runs with the concurrency keys in the arrays $8 job and $9 key; the jobs $10 and runs $11 that cannot be decoded;
-- and runs of marked backlogs.
select w.run, w.job, w.force, w.attempts, w.key, w.rank
  from waiting w
 where w.tenant = $1 and w.queue = $2 and (w.rank, w.run) > ($4, $5) and w.due_at <= $3
   and (w.force or w.attempts > 0 or (($6::uuid[])[width_bucket(w.job, $6::uuid[])] = w.job) is not true)
   and w.job <> all($10::uuid[]) and w.run <> all($11::uuid[])
   and (w.key is null
        or not exists (select 1 from unnest($8::uuid[], $9::text[]) as f (job, key) where f.job = w.job and f.key = w.key))
   and ((select count(*) from backlog_work) = 0
        or not exists (select 1 from backlog_work b where b.job = w.job and w.lot <= b.up_to))
 order by w.rank, w.run
 limit $7;
