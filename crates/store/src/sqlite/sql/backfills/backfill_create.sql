-- Inserts a backfill that has made no runs yet. Primary key: backfills.
-- ?1 id, ?2 tenant, ?3 job, ?4 from_at, ?5 to_at, ?6 newest_first, ?7 rate_count, ?8 rate_ms, ?9 payload, ?10 ticks (8 bytes
-- each, in the order in which they get runs), ?11 total, ?12 created_at, ?13 created_by.
insert into backfills (id, tenant, job, from_at, to_at, newest_first, rate_count, rate_ms, payload, ticks, total, created_at, created_by)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);
