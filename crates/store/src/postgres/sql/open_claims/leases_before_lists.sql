-- Whether a node is alive whose release does not read open_claims. Scans leases, a small table.
select exists (select 1 from leases where not ended and not lists_claims);
