-- The id up to which the claims of the lease of incarnation ?1 are listed. Key: leases.
select max(open_from, coalesce(compared_to, open_from)) from leases where incarnation = ?1;
