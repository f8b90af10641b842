-- Raises the fence of a lease that lives at ?4 and carries the fence ?5. Key: leases.
update leases set fence = ?3 where incarnation = ?1 and node = ?2 and until > ?4 and fence = ?5 and ended = 0;
