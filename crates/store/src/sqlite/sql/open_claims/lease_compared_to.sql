-- Reads the id below which the claims of incarnation ?1 have been added to open_claims. Primary key: leases.
select max(open_from, coalesce(compared_to, open_from)) from leases where incarnation = ?1;
