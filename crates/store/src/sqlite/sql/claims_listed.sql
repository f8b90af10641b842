-- Up to ?3 rows of open_claims of incarnation ?1 after run ?2, with their runs; `id` is null where the run is no longer claimed by
-- that incarnation. Payloads are left out. Index: open_claims_incarnation; key: runs.
select listed.run, listed.fence as listed_fence, r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, null as payload
  from (select run, fence from open_claims indexed by open_claims_incarnation
         where incarnation = ?1 and run > ?2 order by run limit ?3) listed
  left join runs r on r.id = listed.run and r.state = 1 and r.incarnation = ?1
 order by listed.run;
