-- The jobs that follow the jobs $1, and these, up to $2 of them, each with its edges to parents. Keys: job_parents, jobs; index:
-- job_parents_parent.
with recursive below (job) as (
    select unnest($1::uuid[])
    union
    select p.child from below b join job_parents p on p.parent = b.job
), reached as materialized (select job from below limit $2)
select s.job, j.name, p.parent, p.when_ended
  from reached s
  join jobs j on j.id = s.job
  left join job_parents p on p.child = s.job;
