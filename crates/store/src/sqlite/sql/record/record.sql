-- Inserts ticks (cause 1) that are not after ?2, of jobs that still have the planned epoch and whose cursor has not passed them.
-- Primary keys: epochs, cursors, runs. ?1 JSON array of strings, ?2 time, ?3 node, ?4 incarnation. A row that exists stays.
-- Each string is one tick: id, job, state (0 waiting, 1 claimed, 5 skipped), late, skip reason, tick, due_at, epoch. Nested JSON
-- arrays take twice the time. `limit -1` makes SQLite split each string once.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence,
                  node, incarnation, started_at, finished_at, skip_reason)
select t.id, e.tenant, e.job, 1, t.tick, t.due_at, t.state, t.late, 0,
       t.state = 1, 0, iif(t.state = 1, max(1, ?2 * 1000), 0),
       iif(t.state = 1, ?3, null), iif(t.state = 1, ?4, null), iif(t.state = 1, ?2, null),
       iif(t.state = 5, ?2, null), nullif(t.reason, 0)
  from (select unhex(substr(value, 1, 32)) as id,
               unhex(substr(value, 33, 32)) as job,
               cast(substr(value, 65, 1) as integer) as state,
               cast(substr(value, 66, 1) as integer) as late,
               cast(substr(value, 67, 2) as integer) as reason,
               cast(substr(value, 69, 20) as integer) as tick,
               cast(substr(value, 89, 20) as integer) as due_at,
               cast(substr(value, 109) as integer) as epoch
          from json_each(?1) limit -1) as t
 cross join epochs e on e.job = t.job and e.epoch = t.epoch
 cross join cursors c on c.job = t.job and c.next_tick <= t.tick
 where t.tick <= ?2
on conflict (id) do nothing;
