-- Lists the leases that have not ended. Scans leases, a small table.
select everytick_now() as now, incarnation, node, region, version, fence, until, started_at, renewed_at, holds, lag_ms,
       clock_offset_ms, host, pid, process, can, listen
  from leases where not ended order by node collate "C";
