-- Whether the lease lives at ?4 and carries the fence; gives its open_from. Key: leases.
select open_from from leases where incarnation = ?1 and node = ?2 and fence = ?3 and until > ?4 and ended = 0;
