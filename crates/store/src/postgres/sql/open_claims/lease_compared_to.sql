-- Reads the id below which the claims of incarnation $1 have been added to open_claims. Primary key: leases.
select greatest(open_from, compared_to) from leases where incarnation = $1;
