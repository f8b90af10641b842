-- Up to ?1 rows behind the key ?2. Key: flows.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph
  from flows
 where id > ?2
 order by id
 limit ?1;
