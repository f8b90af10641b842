-- Lists the jobs ?1 and all their descendants, up to ?2 jobs, each with its edges to parents.
-- Primary keys: job_parents, jobs. Index: job_parents_parent.
with recursive below (job) as (
    select unhex(value) from json_each(?1)
    union
    select p.child from below b cross join job_parents p on p.parent = b.job
    limit ?2
)
select b.job, j.name, p.parent, p.when_ended
  from below b
 cross join jobs j on j.id = b.job
  left join job_parents p on p.child = b.job;
