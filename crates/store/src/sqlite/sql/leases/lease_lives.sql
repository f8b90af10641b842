-- Reads open_from of the lease of incarnation ?1 and node ?2, if it carries fence ?3 and is alive at ?4. Primary key: leases.
select open_from from leases where incarnation = ?1 and node = ?2 and fence = ?3 and until > ?4 and ended = 0;
