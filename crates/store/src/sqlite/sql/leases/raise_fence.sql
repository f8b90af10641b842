-- Sets the fence of the lease of incarnation ?1 and node ?2 to ?3, if it is alive at ?4 and carries fence ?5.
-- Primary key: leases.
update leases set fence = ?3 where incarnation = ?1 and node = ?2 and until > ?4 and fence = ?5 and ended = 0;
