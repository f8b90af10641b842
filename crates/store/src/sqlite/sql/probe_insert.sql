-- Inserts the ticks of ?1 as born claimed, and asks nothing. Each is a string, cut up here, as for record.sql.
insert into probe_runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, node, incarnation, started_at)
select t.id, 1, t.job, 1, t.tick, t.tick, 1, 0, 0, 1, 0, t.tick * 1000, 'bench', t.job, t.tick
  from (select unhex(substr(value, 1, 32)) as id,
               unhex(substr(value, 33, 32)) as job,
               cast(substr(value, 65) as integer) as tick
          from json_each(?1) limit -1) as t;
