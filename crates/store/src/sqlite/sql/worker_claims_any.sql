-- Whether workers hold anything. Reads one row.
select exists (select 1 from worker_claims);
