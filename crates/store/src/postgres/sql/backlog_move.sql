-- Has up to $3 runs of job $1 up to lot $2 wait in queue $4, or for a node, and in partition $5, from $8 on; $6 and $7 are what the
-- priority is worth on time and late. Index: waiting_job.
with marked as materialized (
    select ctid as place from waiting where job = $1 and lot <= $2 limit $3 for update skip locked
)
update waiting w
   set queue = $4, partition = $5, lot = nextval('waiting_lots'),
       rank = case when $4::text is not null then case when w.late then $8::bigint - $7::bigint else w.due_at - $6::bigint end end
  from marked
 where w.ctid = marked.place;
