-- Adds claims of incarnation $1 to open_claims, in ascending order of run. Primary key: open_claims.
-- Arrays: $2 run, $3 job, $4 tenant, $5 fence. Claims that are listed already are not written.
-- A row with a higher fence, of a newer claim on the same run, stays.
insert into open_claims as o (run, job, tenant, incarnation, fence)
select n.run, n.job, n.tenant, $1, n.fence
  from unnest($2::uuid[], $3::uuid[], $4::integer[], $5::bigint[]) as n (run, job, tenant, fence)
 where not coalesce((select l.incarnation = $1 and l.fence = n.fence from open_claims l where l.run = n.run), false)
 order by n.run
on conflict (run) do update set incarnation = excluded.incarnation, fence = excluded.fence where o.fence <= excluded.fence;
