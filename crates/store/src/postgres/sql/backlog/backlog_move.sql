-- Moves up to $3 waiting runs of job $1 up to lot $2 to queue $4 (null: push target) and partition $5. Index: waiting_job.
-- $6 and $7 lead of the job's priority in milliseconds, on time and late; $8 time.
-- rank = the instant since which the run waits, minus the lead. Skips locked rows; the next batch takes them.
-- A new lot takes the moved runs out of the mark.
with marked as materialized (
    select ctid as place from waiting where job = $1 and lot <= $2 limit $3 for update skip locked
)
update waiting w
   set queue = $4, partition = $5, lot = nextval('waiting_lots'),
       rank = case when $4::text is not null then case when w.late then $8::bigint - $7::bigint else w.due_at - $6::bigint end end
  from marked
 where w.ctid = marked.place;
