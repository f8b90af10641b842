-- Takes those of the runs $1 from among the waiting that stand in the partitions $5, are due at $2, and that nobody else is
-- taking, and claims them; only those that were handed to this node where $6, else only those that were handed to none. A row
-- that was changed since we looked has another place, and is left for the next time. Keys: waiting, the day's. `lateral`, `coalesce` and `any` leave no way but the key: by any other index every waiting run would be held against $1.
-- From here on the transaction waits for a locked row no longer than $7 milliseconds (the lease is locked already).
-- `& 255`: a damaged partition number must not fail the statement.
with patience as materialized (
    select set_config('lock_timeout', $7, true)
), due as materialized (
    select w.place
      from patience
     cross join unnest($1::uuid[]) as asked (run)
     cross join lateral (
            select ctid as place
              from waiting
             where run = asked.run and coalesce(queue is null, false) and due_at <= $2 and get_bit($5::bytea, partition & 255) = 1
               and for_node is not distinct from case when $6::boolean then $4::uuid end
               and ((select count(*) from backlog_work) = 0
                    or not exists (select 1 from backlog_work b where b.job = waiting.job and waiting.lot <= b.up_to))
               for update skip locked) w
), taken as (
    delete from waiting w using due where w.ctid = due.place returning w.run
)
update runs_of_the_day r
   set state = 1, fence = greatest(r.fence + 1, $2::bigint * 1000), attempt = r.attempt + 1, node = $3, incarnation = $4,
       started_at = $2, error = null
  from taken
 where r.id = any (array[taken.run]) and r.state = 0
returning r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload;
