-- Reads up to ?2 waiting runs of each of the jobs ?1. Index: waiting_job. Primary key: runs.
select r.job, r.id, r.state, r.attempt, 0 as fence
  from json_each(?1) as asked
 cross join runs r on r.id in (
       select w.run from waiting w indexed by waiting_job where w.job = unhex(asked.value) limit ?2);
