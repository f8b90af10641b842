-- Lists the jobs that are connected to the jobs ?1 by edges in either direction, up to ?2 jobs, each with its edges to parents.
-- Primary keys: job_parents, jobs. Index: job_parents_parent.
with recursive near (job) as (
    select unhex(value) from json_each(?1)
    union
    select p.parent from near cross join job_parents p on p.child = near.job
    union
    select p.child from near cross join job_parents p on p.parent = near.job
    limit ?2
)
select near.job, j.name, p.parent, p.when_ended
  from near
 cross join jobs j on j.id = near.job
  left join job_parents p on p.child = near.job;
