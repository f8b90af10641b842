-- Removes the rows [run, fence] of open_claims. A row that a newer claim has changed since it was read has another fence, and
-- stays. Key: open_claims.
delete from open_claims o
 using unnest($1::uuid[], $2::bigint[]) as n (run, fence)
 where o.run = n.run and o.fence = n.fence;
