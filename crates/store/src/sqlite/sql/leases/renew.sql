-- Extends the lease of incarnation ?1 to ?2. Primary key: leases. ?4 time, ?5 lag_ms, ?6 clock_offset_ms;
-- ?7 and ?8 are for PostgreSQL. Raises `open_from` to ?3, but not past `compared_to`.
update leases
   set until = ?2, renewed_at = ?4, lag_ms = ?5, clock_offset_ms = ?6,
       open_from = max(open_from, coalesce(min(?3, compared_to), open_from))
 where incarnation = ?1;
