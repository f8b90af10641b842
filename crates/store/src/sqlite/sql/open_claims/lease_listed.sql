-- Sets open_from of the ended lease of incarnation ?1 to ?2, because all its claims are in open_claims. Primary key: leases.
update leases set open_from = ?2 where incarnation = ?1 and ended = 1;
