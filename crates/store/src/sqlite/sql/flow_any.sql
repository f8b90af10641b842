-- Whether any job follows another, or did. Keys: job_parents, flows.
select exists (select 1 from job_parents) or exists (select 1 from flows);
