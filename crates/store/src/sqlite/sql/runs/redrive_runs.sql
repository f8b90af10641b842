-- Inserts, at ?2, a new run (cause 2, state 0 waiting, late) for each failed run, with its payload. Primary key: runs.
-- ?1 JSON array of [failed run, new run]. A run that exists stays.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, payload)
select unhex(m.value ->> 1), f.tenant, f.job, 2, f.scheduled_at, max(?2, f.scheduled_at), 0, 1, 0, 0, 0, 0, f.payload
  from json_each(?1) as m
 cross join runs f on f.id = unhex(m.value ->> 0)
 where true
on conflict (id) do nothing;
