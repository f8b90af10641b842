-- Lists up to ?7 runs that wait in queue ?2 of tenant ?1 and are due at ?3, in order of rank after (?4 rank, ?5 run).
-- Index: waiting_queue.
-- Leaves out runs of the jobs ?6, unless they are forced or between two attempts;
-- runs with the concurrency keys in ?8, a JSON array of [job, key]; the jobs ?9 and runs ?10 that cannot be decoded;
-- and runs of marked backlogs.
select w.run, w.job, w.force, w.attempts, w.key, w.rank
  from waiting w indexed by waiting_queue
 where w.tenant = ?1 and w.queue = ?2 and (w.rank, w.run) > (?4, ?5) and w.due_at <= ?3
   and (w.force = 1 or w.attempts > 0 or w.job not in (select unhex(value) from json_each(?6)))
   and w.job not in (select unhex(value) from json_each(?9)) and w.run not in (select unhex(value) from json_each(?10))
   and (w.key is null
        or not exists (select 1 from json_each(?8) as f where unhex(f.value ->> 0) = w.job and f.value ->> 1 = w.key))
   and ((select count(*) from backlog_work) = 0
        or not exists (select 1 from backlog_work b where b.job = w.job and w.lot <= b.up_to))
 order by w.rank, w.run
 limit ?7;
