-- The leases that have not ended. Scans leases, which are few.
select everytick_now() as now, incarnation, node, region, version, fence, until, started_at, renewed_at
  from leases where not ended order by node collate "C";
