-- Up to $3 runs claimed by incarnation $1, from the id $2 on, where all of them lie. Key: runs.
select id, job, tenant, cause, scheduled_at, fence, attempt, lost, payload
  from runs
 where id >= $2 and state = 1 and incarnation = $1
 order by id
 limit $3;
