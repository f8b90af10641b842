-- Lists up to ?3 rows of open_claims of incarnation ?1 after run ?2, with their runs, without payloads.
-- Index: open_claims_incarnation. Primary key: runs.
-- `id` is null if that incarnation no longer has the run claimed (state 1): the row is stale.
select listed.run, listed.fence as listed_fence, r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, null as payload
  from (select run, fence from open_claims indexed by open_claims_incarnation
         where incarnation = ?1 and run > ?2 order by run limit ?3) listed
  left join runs r on r.id = listed.run and r.state = 1 and r.incarnation = ?1
 order by listed.run;
