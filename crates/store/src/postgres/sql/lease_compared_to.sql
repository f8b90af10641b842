-- The id up to which the claims of the lease of incarnation $1 are listed. Key: leases.
select greatest(open_from, compared_to) from leases where incarnation = $1;
