-- Moves the waiting runs of job $1 to queue $2 (null: push target) at time $5. Index: waiting_job.
-- $3 and $4 lead of the job's priority in milliseconds, on time and late.
-- rank = the instant since which the run waits, minus the lead.
update waiting
   set queue = $2, rank = case when $2::text is not null then case when late then $5 - $4::bigint else due_at - $3::bigint end end
 where job = $1 and queue is distinct from $2::text;
