-- Lists up to $3 runs that are delegated to incarnation $1 and due at $2, oldest first, except runs of the jobs $4.
-- Index: waiting_for_node.
select run, job, tenant, priority, due_at, late, force, attempts
  from waiting
 where for_node = $1 and queue is null and due_at <= $2 and job <> all($4::uuid[])
 order by due_at, run
 limit $3;
