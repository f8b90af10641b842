-- Removes from waiting those of the runs $1 that still wait in queue $3 of tenant $2 and are not locked. Primary key: waiting.
-- Runs of a marked backlog stay. `lateral` and `coalesce` leave the planner no way but the key. Returns the removed runs.
with due as materialized (
    select w.place
      from unnest($1::uuid[]) as asked (run)
     cross join lateral (
            select ctid as place
              from waiting
             where run = asked.run and coalesce(tenant = $2 and queue = $3, false)
               and ((select count(*) from backlog_work) = 0
                    or not exists (select 1 from backlog_work b where b.job = waiting.job and waiting.lot <= b.up_to))
               for update skip locked) w
)
delete from waiting w using due where w.ctid = due.place returning w.run, w.key;
