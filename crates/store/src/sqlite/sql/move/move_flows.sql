-- Reads up to ?1 rows of flows after id ?2, for a move. Primary key: flows.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph
  from flows
 where id > ?2
 order by id
 limit ?1;
