-- Inserts ticks (cause 1): the last ticks of a definition that an edit ends, an `at` of a moment ago, or lost ticks.
-- Primary key: runs. ?1 JSON array of strings as record.sql reads them, ?2 time, ?3 tenant. State '5' is skipped.
-- Unlike record.sql, this compares neither cursor nor epoch nor clock: the caller has the only write transaction and has decided.
-- A row that exists stays. Returns the inserted ids.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                  skip_reason)
select unhex(substr(t.value, 1, 32)), ?3, unhex(substr(t.value, 33, 32)), 1,
       cast(substr(t.value, 69, 20) as integer), cast(substr(t.value, 89, 20) as integer),
       cast(substr(t.value, 65, 1) as integer), cast(substr(t.value, 66, 1) as integer), 0, 0, 0, 0,
       iif(substr(t.value, 65, 1) = '5', ?2, null), nullif(cast(substr(t.value, 67, 2) as integer), 0)
  from json_each(?1) as t
 where true
on conflict (id) do nothing
returning id;
