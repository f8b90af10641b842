-- Lengthens a lease, held alone, to $2. Raises `open_from` to $3, but not past `compared_to`. While a node lives that does not read
-- open_claims, `open_from` stays at or below $7, the lowest claim. Key: leases.
update leases l
   set until = $2, renewed_at = $4, lag_ms = $5, clock_offset_ms = $6, ttl_ms = $8,
       open_from = least(greatest(l.open_from, case when $3::uuid < l.compared_to then $3 when $3 is not null then l.compared_to end),
                         case when exists (select 1 from leases o where not o.ended and not o.lists_claims) then $7::uuid end)
 where incarnation = $1;
