-- The epochs of the jobs $1, in any order, as one row: a row each would take the client longer than the server. Key: epochs.
select coalesce(array_agg(e.job), '{}') as jobs, coalesce(array_agg(e.epoch), '{}') as epochs
  from unnest($1::uuid[]) as asked (job) join epochs e on e.job = asked.job;
