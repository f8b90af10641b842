-- Lists up to $3 runs of job $1 with the concurrency key $2 that workers have claimed. Index: worker_claims_job.
select run from worker_claims where job = $1 and key = $2 order by run limit $3;
