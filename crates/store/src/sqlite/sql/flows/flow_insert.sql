-- Inserts a flow. Primary key: flows.
-- ?1 id, ?2 tenant, ?3 opened_at, ?4 scheduled_at, ?5 rerun_of, ?6 graph.
insert into flows (id, tenant, opened_at, scheduled_at, rerun_of, graph) values (?1, ?2, ?3, ?4, ?5, ?6);
