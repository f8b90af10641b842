-- Whether any job has a parent, or any flow exists. Primary keys: job_parents, flows.
select exists (select 1 from job_parents) or exists (select 1 from flows);
