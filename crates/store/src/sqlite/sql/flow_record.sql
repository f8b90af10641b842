-- Inserts, at ?5, runs [id, job, cause, state, reason, error, payload] of ?1, of tenant ?2 and flow ?3 for the instant ?4; what is
-- there stays. Gives what was not there. Key: runs.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                  skip_reason, error, payload, flow)
select unhex(c.value ->> 0), ?2, unhex(c.value ->> 1), c.value ->> 2, ?4, max(?5, ?4), c.value ->> 3, 0, 0, 0, 0, 0,
       iif(c.value ->> 3 = 5, ?5, null), c.value ->> 4, c.value ->> 5, c.value ->> 6, ?3
  from json_each(?1) as c
 where true
on conflict (id) do nothing
returning id;
