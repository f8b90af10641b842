-- Inserts ticks (cause 1) born claimed (state 1) without any guard, as the upper limit of a benchmark.
-- ?1 JSON array of strings: run, job, tick. As in record.sql, `limit -1` makes SQLite split each string once.
insert into probe_runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, node, incarnation, started_at)
select t.id, 1, t.job, 1, t.tick, t.tick, 1, 0, 0, 1, 0, t.tick * 1000, 'bench', t.job, t.tick
  from (select unhex(substr(value, 1, 32)) as id,
               unhex(substr(value, 33, 32)) as job,
               cast(substr(value, 65) as integer) as tick
          from json_each(?1) limit -1) as t;
