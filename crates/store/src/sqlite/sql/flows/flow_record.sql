-- Inserts runs of flow ?3, tenant ?2, scheduled_at ?4, at time ?5; a run that exists stays. Primary key: runs.
-- ?1 JSON array of [id, job, cause, state (0 waiting, 5 skipped), skip reason, error, payload]. Returns the inserted ids.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                  skip_reason, error, payload, flow)
select unhex(c.value ->> 0), ?2, unhex(c.value ->> 1), c.value ->> 2, ?4, max(?5, ?4), c.value ->> 3, 0, 0, 0, 0, 0,
       iif(c.value ->> 3 = 5, ?5, null), c.value ->> 4, c.value ->> 5, c.value ->> 6, ?3
  from json_each(?1) as c
 where true
on conflict (id) do nothing
returning id;
