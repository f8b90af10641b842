-- Adds the claims (state 1) of incarnation $1 on runs from id $2 to before $3 to open_claims, in ascending order.
-- Primary keys: runs, open_claims. A row with a higher fence, of a newer claim, stays.
insert into open_claims as o (run, job, tenant, incarnation, fence)
select id, job, tenant, incarnation, fence
  from runs
 where id >= $2 and id < $3 and state = 1 and incarnation = $1
 order by id
on conflict (run) do update set incarnation = excluded.incarnation, fence = excluded.fence where o.fence <= excluded.fence;
