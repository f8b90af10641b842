-- The jobs that hang together with the jobs of ?1, up to ?2 of them, each with its edges to parents. Keys: job_parents, jobs; index:
-- job_parents_parent.
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
