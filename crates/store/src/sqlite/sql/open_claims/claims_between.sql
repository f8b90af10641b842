-- Lists the runs from id ?2 to before ?3 that incarnation ?1 has claimed (state 1), without payloads. Primary key: runs.
select id, job, tenant, cause, scheduled_at, fence, attempt, lost, null as payload
  from runs
 where id >= ?2 and id < ?3 and state = 1 and incarnation = ?1
 order by id;
