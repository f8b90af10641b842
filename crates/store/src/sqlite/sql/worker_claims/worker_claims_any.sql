-- Whether any worker has a claim. Reads one row.
select exists (select 1 from worker_claims);
