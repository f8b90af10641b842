-- Ends the lease of incarnation ?1 under the new fence ?2; ?3 is for PostgreSQL. Primary key: leases.
update leases set ended = 1, fence = ?2 where incarnation = ?1;
