-- Inserts attempts after which their runs wait again. Primary keys: runs, attempts.
-- ?1 JSON array of [run, outcome, started_at, finished_at, error, output].
insert into attempts (run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker, tenant)
select r.id, r.attempt, r.fence, r.node, coalesce(s.value ->> 2, r.started_at), s.value ->> 3, s.value ->> 1,
       s.value ->> 4, s.value ->> 5, r.worker, r.tenant
  from json_each(?1) as s
 cross join runs r on r.id = unhex(s.value ->> 0);
