-- Inserts ticks (cause 1) born claimed (state 1) without any guard, as the upper limit of a benchmark.
-- Arrays: $1 run, $2 job, $3 tick.
insert into probe_runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, node, incarnation, started_at)
select t.id, 1, t.job, 1, t.tick, t.tick, 1, false, false, 1, 0, t.tick * 1000, 'bench', t.job, t.tick
  from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as t (id, job, tick);
