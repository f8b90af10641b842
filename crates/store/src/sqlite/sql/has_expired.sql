-- Whether a lease but that of incarnation ?1 has expired at ?2 and not been fenced. Scans leases, which are few.
select exists (select 1 from leases where incarnation <> ?1 and ended = 0 and until <= ?2);
