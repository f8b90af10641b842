-- Writes a flow. Key: flows.
insert into flows (id, tenant, opened_at, scheduled_at, rerun_of, graph) values (?1, ?2, ?3, ?4, ?5, ?6);
