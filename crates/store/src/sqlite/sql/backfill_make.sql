-- Makes the runs [id, tick] of ?1 for job ?3 of tenant ?2, late, due at ?4, with the payload ?5; one that is there stays. Key: runs.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, payload)
select unhex(m.value ->> 0), ?2, ?3, 3, m.value ->> 1, ?4, 0, 1, 0, 0, 0, 0, ?5
  from json_each(?1) as m
 where true
on conflict (id) do nothing
returning id;
