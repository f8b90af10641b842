-- Ends the runs [id, fence, state, started_at, ended_at, error, output] that are still claimed under that fence. Tells how many, and
-- which when not all, which of them a worker held, and which a flow may follow. Starts that are not known are -1; starts and
-- texts that nothing has are empty arrays. Key: the day's; index: job_parents_parent.
-- `any` leaves no way but the key: a plan made while the day is young would go through all of it for each batch.
with ended as (
    update runs_of_the_day r
       set state = ($3::smallint[])[s.place], started_at = coalesce(nullif(($4::bigint[])[s.place], -1), r.started_at),
           finished_at = ($5::bigint[])[s.place], error = s.error, output = s.output, incarnation = null
      from unnest($1::uuid[], $6::text[], $7::text[]) with ordinality as s (id, error, output, place)
     where r.id = any (array[s.id]) and r.state = 1 and r.fence = ($2::bigint[])[s.place]
    returning r.id, r.worker is not null as worked,
              r.flow is not null
              -- Where there is no edge at all, which is asked once and of the same snapshot, there is none of this job.
              or (select exists (select 1 from job_parents))
                 -- Not `exists`: that may be answered by reading all edges once.
                 and coalesce((select true from job_parents p where p.parent = r.job limit 1), false) as steps
)
select e.count, case when e.count < cardinality($1) then array(select id from ended) end as ids, e.worked, e.steps
  from (select count(*) as count, array_agg(id) filter (where worked) as worked, array_agg(id) filter (where steps) as steps
          from ended) e;
