-- Lists up to $3 runs that are delegated to incarnation $1 and due at $2, oldest first, except runs of the jobs $4.
-- Index: waiting_for_node. The array $4 is sorted; see peek_waiting.sql.
select run, job, tenant, priority, due_at, late, force, attempts
  from waiting
 where for_node = $1 and queue is null and due_at <= $2 and (($4::uuid[])[width_bucket(job, $4::uuid[])] = job) is not true
 order by due_at, run
 limit $3;
