-- Reads flow $1. Primary key: flows.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph from flows where id = $1;
