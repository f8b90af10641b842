-- Adds claims of incarnation ?1 to open_claims. ?2 JSON array of [run, job, tenant, fence]. Primary key: open_claims.
-- A row with the same or a higher fence stays: the claim is listed already, or a newer claim on the same run is.
insert into open_claims (run, job, tenant, incarnation, fence)
select unhex(n.value ->> 0), unhex(n.value ->> 1), n.value ->> 2, ?1, n.value ->> 3
  from json_each(?2) as n
 where true
on conflict (run) do update set incarnation = excluded.incarnation, fence = excluded.fence where open_claims.fence < excluded.fence;
