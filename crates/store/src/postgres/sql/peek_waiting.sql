-- Up to $4 runs due at $1 in the partitions $2, in the order of claims, without those of the jobs in $3 that
-- are neither forced nor in progress already. Index: waiting_claim.
select w.*
  from (values (false), (true)) as l (late)
 cross join generate_series(0, 9) as p (priority)
 cross join lateral (
        select run, job, tenant, priority, due_at, late, force, attempts
          from waiting w
         where w.late = l.late and w.priority = p.priority and w.due_at <= $1
           and w.partition = any($2) and (w.force or w.attempts > 0 or w.job <> all($3))
         order by w.due_at, w.run
         limit $4) w
 order by w.late, w.priority desc, w.due_at, w.run
 limit $4;
