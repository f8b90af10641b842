-- Locks and reads flow $1, so that no other transaction advances it. Primary key: flows.
select id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph from flows where id = $1 for update;
