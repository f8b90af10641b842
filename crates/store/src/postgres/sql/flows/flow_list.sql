-- Lists up to $4 flows of tenant $1 with ids from $2 to before $3, newest first. Primary key: flows, backwards.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph
  from flows
 where tenant = $1 and id >= $2 and id < $3
 order by id desc
 limit $4;
