-- Removes stale rows from open_claims. Arrays: $1 run, $2 fence. Primary key: open_claims.
-- A row that a newer claim has changed has another fence and stays. A locked row (SKIP LOCKED) stays until the next search.
delete from open_claims
 where run = any (array(
        select o.run
          from unnest($1::uuid[], $2::bigint[]) as n (run, fence)
          join open_claims o on o.run = n.run and o.fence = n.fence
           for update of o skip locked));
