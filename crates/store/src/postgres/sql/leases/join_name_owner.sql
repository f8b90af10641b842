-- Reads the lease of node $2 that is alive at $3 and is not that of incarnation $1. Scans leases, a small table.
select incarnation, host, pid, process, renewed_at, until
  from leases
 where node = $2 and incarnation <> $1 and not ended and until > $3
 order by renewed_at desc
 limit 1;
