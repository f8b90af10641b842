-- Lengthens a lease at ?4 to ?2 and notes the lowest id it may have claimed. Key: leases.
update leases set until = ?2, open_from = ?3, renewed_at = ?4, lag_ms = ?5, clock_offset_ms = ?6 where incarnation = ?1;
