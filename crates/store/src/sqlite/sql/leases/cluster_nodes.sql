-- Lists the leases that have not ended. Scans leases, a small table.
select incarnation, node, region, version, fence, until, started_at, renewed_at, holds, lag_ms, clock_offset_ms,
       host, pid, process, can, listen
  from leases where ended = 0 order by node;
