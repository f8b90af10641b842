-- Makes a backfill, none of whose runs is made. Key: backfills.
insert into backfills (id, tenant, job, from_at, to_at, newest_first, rate_count, rate_ms, payload, ticks, total, created_at, created_by)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);
