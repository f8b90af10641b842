-- Whether a lease other than that of incarnation ?1 has expired at ?2 and has not ended. Scans leases, a small table.
select exists (select 1 from leases where incarnation <> ?1 and ended = 0 and until <= ?2);
