-- Makes, at ?2, the runs [failed, id] of ?1 in the places of failed ones, late and with their payloads; one that is there stays.
-- Key: runs.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, payload)
select unhex(m.value ->> 1), f.tenant, f.job, 2, f.scheduled_at, max(?2, f.scheduled_at), 0, 1, 0, 0, 0, 0, f.payload
  from json_each(?1) as m
 cross join runs f on f.id = unhex(m.value ->> 0)
 where true
on conflict (id) do nothing;
