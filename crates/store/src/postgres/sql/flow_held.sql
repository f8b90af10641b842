-- Holds flow $1: nobody else advances it. Key: flows.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph from flows where id = $1 for update;
