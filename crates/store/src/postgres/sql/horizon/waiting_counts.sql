-- Counts the waiting runs of each of the jobs $1, at most $2 each. Index: waiting_job.
select asked.job, (select count(*) from (select 1 from waiting w where w.job = asked.job limit $2) counted) as count
  from unnest($1::uuid[]) as asked (job);
