-- Ends runs that are still claimed (state 1) under their fence. Primary key: the day's table. Index: job_parents_parent.
-- Arrays: $1 run, $2 fence, $3 new state (2 succeeded, 3 failed, 4 cancelled), $4 started_at (-1: unknown), $5 finished_at,
-- $6 error, $7 output. $4, $6 and $7 are empty if no run has a value.
-- Returns how many ended, their ids if not all did, those claimed by workers, and those a flow may follow.
-- `any (array[...])` leaves the planner no way but the key: a plan made while the day has few runs would scan the day for each
-- batch.
with ended as (
    update runs_of_the_day r
       set state = ($3::smallint[])[s.place], started_at = coalesce(nullif(($4::bigint[])[s.place], -1), r.started_at),
           finished_at = ($5::bigint[])[s.place], error = s.error, output = s.output, incarnation = null
      from unnest($1::uuid[], $6::text[], $7::text[]) with ordinality as s (id, error, output, place)
     where r.id = any (array[s.id]) and r.state = 1 and r.fence = ($2::bigint[])[s.place]
    returning r.id, r.worker is not null as worked,
              r.flow is not null
              -- Asked once per statement, in the same snapshot: without any edge, no job has children.
              or (select exists (select 1 from job_parents))
                 -- Not `exists`: the planner could answer that by reading all edges.
                 and coalesce((select true from job_parents p where p.parent = r.job limit 1), false) as steps
)
select e.count, case when e.count < cardinality($1) then array(select id from ended) end as ids, e.worked, e.steps
  from (select count(*) as count, array_agg(id) filter (where worked) as worked, array_agg(id) filter (where steps) as steps
          from ended) e;
