-- Whether a node of a release that does not read open_claims lives. Scans leases, which are few.
select exists (select 1 from leases where not ended and not lists_claims);
