-- Claims (state 0 to 1) those of the runs $1 that wait in the partitions $5 (a bitmap), are due at $2 and are not locked.
-- Primary keys: waiting, the day's table. Lock order: waiting, then runs; the lease is locked already.
-- $3 node, $4 incarnation, $6 true: only runs delegated to this node; false: only runs delegated to no node.
-- Runs of a marked backlog are left out. $7 lock timeout in milliseconds for the rest of the transaction.
-- The fence becomes greatest(old + 1, microseconds of $2), so it also increases across a database promotion (I9).
-- `lateral`, `coalesce` and `any` leave the planner no way but the key: any other index would compare every waiting run with $1.
-- A row that changed after it was read has another ctid; a later claim takes it.
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
