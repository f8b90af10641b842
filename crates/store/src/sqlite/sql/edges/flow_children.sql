-- Lists the names of the jobs that depend on job ?1. Index: job_parents_parent. Primary key: jobs.
select j.name from job_parents p cross join jobs j on j.id = p.child where p.parent = ?1 order by j.name;
