-- What waits of job $1 waits in queue $2, or for a node, from $5 on; $3 and $4 are what its priority is worth on time and late. Index: waiting_job.
update waiting
   set queue = $2, rank = case when $2::text is not null then case when late then $5 - $4::bigint else due_at - $3::bigint end end
 where job = $1 and queue is distinct from $2::text;
