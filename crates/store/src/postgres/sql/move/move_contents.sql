-- Counts what the target database contains, at most $1 per kind, to check that it is empty before a move.
-- Scans each table up to that.
select 'jobs' as name, (select count(*) from (select 1 from jobs limit $1) as found) as count
union all select 'runs' as name, (select count(*) from (select 1 from runs limit $1) as found) as count
union all select 'runs that outlived their days' as name, (select count(*) from (select 1 from last_runs limit $1) as found) as count
union all select 'skipped ranges' as name, (select count(*) from (select 1 from skip_ranges limit $1) as found) as count
union all select 'idempotency keys' as name, (select count(*) from (select 1 from requests limit $1) as found) as count
union all select 'audit rows' as name, (select count(*) from (select 1 from audit limit $1) as found) as count
union all select 'calendars' as name, (select count(*) from (select 1 from calendars limit $1) as found) as count
union all select 'tenants beside the default one' as name, (select count(*) from (select 1 from tenants where id <> 1 limit $1) as found) as count;
