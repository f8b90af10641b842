-- Adds the claims (state 1) of incarnation ?1 on runs from id ?2 to before ?3 to open_claims. Primary keys: runs, open_claims.
-- A row with the same or a higher fence stays.
insert into open_claims (run, job, tenant, incarnation, fence)
select id, job, tenant, incarnation, fence
  from runs
 where id >= ?2 and id < ?3 and state = 1 and incarnation = ?1
on conflict (run) do update set incarnation = excluded.incarnation, fence = excluded.fence where open_claims.fence < excluded.fence;
