-- Counts the rows of each table. Scans all of them.
select 'tenants' as name, count(*) as count from tenants
union all select 'jobs' as name, count(*) as count from jobs
union all select 'epochs' as name, count(*) as count from epochs
union all select 'cursors' as name, count(*) as count from cursors
union all select 'runs' as name, (select count(*) from runs) + (select count(*) from last_runs) as count
union all select 'attempts' as name, count(*) as count from attempts
union all select 'failures' as name, count(*) as count from failures
union all select 'skip_ranges' as name, count(*) as count from skip_ranges
union all select 'waiting' as name, count(*) as count from waiting
union all select 'worker_claims' as name, count(*) as count from worker_claims
union all select 'queues' as name, count(*) as count from queues
union all select 'requests' as name, count(*) as count from requests
union all select 'audit' as name, count(*) as count from audit
union all select 'calendars' as name, count(*) as count from calendars
union all select 'calendar_versions' as name, count(*) as count from calendar_versions
union all select 'calendar_jobs' as name, count(*) as count from calendar_jobs
union all select 'backfills' as name, count(*) as count from backfills
union all select 'backfill_runs' as name, count(*) as count from backfill_runs
union all select 'job_parents' as name, count(*) as count from job_parents
union all select 'flows' as name, count(*) as count from flows
union all select 'flow_steps' as name, count(*) as count from flow_steps;
