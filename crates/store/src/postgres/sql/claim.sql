-- Takes those of the runs $1 from among the waiting that stand in the partitions $5, are due at $2, and that nobody else is
-- taking, and claims them. A row that was changed since we looked has another place, and is left for the next time. Keys: waiting,
-- the day's. `lateral`, `coalesce` and `any` leave no way but the key: by any other index every waiting run would be held against $1.
with due as materialized (
    select w.place
      from unnest($1::uuid[]) as asked (run)
     cross join lateral (
            select ctid as place
              from waiting
             where run = asked.run and coalesce(queue is null, false) and due_at <= $2 and get_bit($5::bytea, partition) = 1
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
