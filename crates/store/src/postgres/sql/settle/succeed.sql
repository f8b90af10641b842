-- Ends runs of tenant $1 as succeeded (state 2) if workers have them claimed (state 1) under their fence.
-- Primary keys: worker_claims, the day's table. Index: job_parents_parent. Arrays: $2 run, $3 fence, $4 output (empty: none).
-- A run without output keeps its log as the output. Leaves out a run with both, and one whose log exceeds 65,536 bytes: the caller
-- joins and cuts them. Returns the ended runs, their jobs, and whether a flow may follow.
-- `limit`, `coalesce` and `any` leave the planner no other way. `place` is converted before it is compared: an operand that can
-- fail would be compared after the row-level security of each row, and not by the key.
with locked as materialized (
    select s.place::integer as place, c.log
      from unnest($2::uuid[]) with ordinality as s (id, place)
     cross join lateral (
            select log from worker_claims
             where run = s.id and coalesce(tenant = $1 and fence = ($3::bigint[])[s.place] and queue <> ''
                   and (log is null or octet_length(log) <= 65536 and ($4::text[])[s.place] is null), false)
             limit 1) c
), ended as (
    update runs_of_the_day r
       set state = 2, finished_at = everytick_now(), error = null, output = coalesce(($4::text[])[h.place], h.log), incarnation = null
      from locked h
     where r.id = any (array[($2::uuid[])[h.place]]) and r.state = 1 and r.fence = ($3::bigint[])[h.place]
    returning r.id, r.job,
              r.flow is not null
              or coalesce((select true from job_parents p where p.parent = r.job limit 1), false) as steps
), gone as (
    delete from worker_claims c using ended e where c.run = e.id
)
select id, job, steps from ended;
