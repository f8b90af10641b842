-- Lists up to $4 open runs (states 0, 1) of tenant $1 that jobs depend on, newest first, among the newest $5 runs with ids from $2
-- to before $3. Primary key: runs, backwards. Index: job_parents_parent.
select newest.id
  from (select id, tenant, job, state, flow from runs where id >= $2 and id < $3 order by id desc limit $5) newest
 where newest.tenant = $1 and newest.flow is null and newest.state < 2
   and exists (select 1 from job_parents p where p.parent = newest.job)
 order by newest.id desc
 limit $4;
