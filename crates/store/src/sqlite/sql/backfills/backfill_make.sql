-- Inserts runs of a backfill (cause 3) as waiting (state 0) and late. Primary key: runs.
-- ?1 JSON array of [run, tick], ?2 tenant, ?3 job, ?4 due_at, ?5 payload. A run that exists stays. Returns the inserted ids.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, payload)
select unhex(m.value ->> 0), ?2, ?3, 3, m.value ->> 1, ?4, 0, 1, 0, 0, 0, 0, ?5
  from json_each(?1) as m
 where true
on conflict (id) do nothing
returning id;
