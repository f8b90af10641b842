-- Inserts ticks [id, job, epoch, tick, due_at, state, late, reason] that are not after ?2, of jobs that still have that
-- epoch and whose cursor has not passed. What is there stays. Keys: epochs, cursors, runs.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence,
                  node, incarnation, started_at, finished_at, skip_reason)
select unhex(t.value ->> 0), e.tenant, e.job, 1, t.value ->> 3, t.value ->> 4, t.value ->> 5, t.value ->> 6, 0,
       t.value ->> 5 = 1, 0, iif(t.value ->> 5 = 1, max(1, ?2 * 1000), 0),
       iif(t.value ->> 5 = 1, ?3, null), iif(t.value ->> 5 = 1, ?4, null),
       iif(t.value ->> 5 = 1, ?2, null), iif(t.value ->> 5 = 5, ?2, null), t.value ->> 7
  from json_each(?1) as t
 cross join epochs e on e.job = unhex(t.value ->> 1) and e.epoch = t.value ->> 2
 cross join cursors c on c.job = e.job and c.next_tick <= t.value ->> 3
 where t.value ->> 3 <= ?2
on conflict (id) do nothing;
