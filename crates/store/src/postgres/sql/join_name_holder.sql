-- The living lease of node $2 at $3 that is not incarnation $1. Scans leases, which are few.
select incarnation, host, pid, process, renewed_at, until
  from leases
 where node = $2 and incarnation <> $1 and not ended and until > $3
 order by renewed_at desc
 limit 1;
