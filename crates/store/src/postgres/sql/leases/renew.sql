-- Extends the lease of incarnation $1 to $2. Primary key: leases. The caller has locked the lease.
-- $4 time, $5 lag_ms, $6 clock_offset_ms, $8 ttl_ms. Raises `open_from` to $3, but not past `compared_to`.
-- While a node is alive whose release does not read open_claims, `open_from` stays at or below $7, the lowest claim.
update leases l
   set until = $2, renewed_at = $4, lag_ms = $5, clock_offset_ms = $6, ttl_ms = $8,
       open_from = least(greatest(l.open_from, case when $3::uuid < l.compared_to then $3 when $3 is not null then l.compared_to end),
                         case when exists (select 1 from leases o where not o.ended and not o.lists_claims) then $7::uuid end)
 where incarnation = $1;
