-- The epochs of the jobs $1, in any order. Key: epochs.
select e.job, e.epoch from unnest($1::uuid[]) as asked (job) join epochs e on e.job = asked.job;
