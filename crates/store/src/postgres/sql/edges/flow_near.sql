-- Lists the jobs that are connected to the jobs $1 by edges in either direction, up to $2 jobs, each with its edges to parents.
-- Primary keys: job_parents, jobs. Index: job_parents_parent.
with recursive near (job) as (
    select unnest($1::uuid[])
    union
    select beside.job
      from near n
     cross join lateral (
            select p.parent as job from job_parents p where p.child = n.job
            union all
            select p.child as job from job_parents p where p.parent = n.job) beside
), reached as materialized (select job from near limit $2)
select s.job, j.name, p.parent, p.when_ended
  from reached s
  join jobs j on j.id = s.job
  left join job_parents p on p.child = s.job;
