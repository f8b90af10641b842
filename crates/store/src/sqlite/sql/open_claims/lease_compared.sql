-- Notes that the claims of incarnation ?1 below id ?2 have been added to open_claims. Primary key: leases.
update leases set compared_to = max(coalesce(compared_to, ?2), ?2) where incarnation = ?1;
