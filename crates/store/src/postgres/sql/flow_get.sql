-- Flow $1. Key: flows.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph from flows where id = $1;
