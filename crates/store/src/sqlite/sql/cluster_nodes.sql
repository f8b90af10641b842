-- The leases that have not ended. Scans leases, which are few.
select incarnation, node, region, version, fence, until, started_at, renewed_at from leases where ended = 0 order by node;
