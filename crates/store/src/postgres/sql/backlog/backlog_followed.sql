-- Whether other jobs depend on job $1. Index: job_parents_parent.
select exists (select 1 from job_parents where parent = $1);
