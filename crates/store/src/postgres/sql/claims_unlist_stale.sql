-- Removes the rows [run, fence] of open_claims. A row that a newer claim has changed since it was read has another fence, and
-- stays. So does one that another session has locked (SKIP LOCKED), until the next search. Key: open_claims.
delete from open_claims
 where run = any (array(
        select o.run
          from unnest($1::uuid[], $2::bigint[]) as n (run, fence)
          join open_claims o on o.run = n.run and o.fence = n.fence
           for update of o skip locked));
