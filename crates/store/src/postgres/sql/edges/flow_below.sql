-- Lists the jobs $1 and all their descendants, up to $2 jobs, each with its edges to parents.
-- Primary keys: job_parents, jobs. Index: job_parents_parent.
with recursive below (job) as (
    select unnest($1::uuid[])
    union
    select p.child from below b join job_parents p on p.parent = b.job
), reached as materialized (select job from below limit $2)
select s.job, j.name, p.parent, p.when_ended
  from reached s
  join jobs j on j.id = s.job
  left join job_parents p on p.child = s.job;
