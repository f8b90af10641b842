-- Puts the runs [id, priority] of ?1 among the waiting, as their rows stand. Key: runs.
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts)
select r.id, r.job, r.tenant, 0, q.value ->> 1, r.due_at, r.late, r.force, r.attempt
  from json_each(?1) as q
 cross join runs r on r.id = unhex(q.value ->> 0);
