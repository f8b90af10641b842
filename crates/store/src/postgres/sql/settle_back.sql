-- Puts the runs [id, due_at, unspent, lost, error, partition, priority], which are held, back to waiting, never before their
-- tick. Keys: the day's, waiting.
with back as (
    update runs_of_the_day r
       set state = 0, due_at = greatest(s.due_at, r.scheduled_at), attempt = r.attempt - s.unspent, lost = r.lost + s.lost,
           error = s.error, node = null, incarnation = null, started_at = null
      from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::smallint[], $7::smallint[])
               as s (id, due_at, unspent, lost, error, partition, priority)
     where r.id = s.id
    returning r.id, r.job, r.tenant, s.partition, s.priority, r.due_at, r.late, r.force, r.attempt
)
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts) select * from back;
