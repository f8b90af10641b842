-- Notes that the claims of the lease of incarnation ?1 are listed up to id ?2. Key: leases.
update leases set compared_to = max(coalesce(compared_to, ?2), ?2) where incarnation = ?1;
