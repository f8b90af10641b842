-- Lists the claims [run, job, tenant, fence] of ?2 of incarnation ?1. Those that are listed, or of a newer claim, stay. Key:
-- open_claims.
insert into open_claims (run, job, tenant, incarnation, fence)
select unhex(n.value ->> 0), unhex(n.value ->> 1), n.value ->> 2, ?1, n.value ->> 3
  from json_each(?2) as n
 where true
on conflict (run) do update set incarnation = excluded.incarnation, fence = excluded.fence where open_claims.fence < excluded.fence;
