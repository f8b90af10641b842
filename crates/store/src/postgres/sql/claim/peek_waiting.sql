-- Lists the waiting runs that the owner of the partitions $2 (a bitmap) may claim at $1. Indexes: waiting_claim, waiting_late.
-- Returns up to $4 runs on time in claim order; then a fair share of late runs of each tenant, up to $5 each.
-- Leaves out runs of the jobs $3, unless they are forced or between two attempts, all runs of the jobs $6, and runs of marked
-- backlogs. Finds each tenant from the one before, so that the cost does not depend on the backlog.
-- The arrays $3 and $6 are sorted: `width_bucket` searches them in steps of halves. A generic plan of `<> all` would compare each
-- run with each element, which took more than 40 s with 99,000 waiting runs and 100,000 jobs.
-- `& 255`: a damaged partition number must not fail the statement.
with recursive tenants as (
    (select tenant from waiting where late and queue is null order by tenant limit 1)
     union all
    select (select w.tenant from waiting w where w.late and w.queue is null and w.tenant > t.tenant order by w.tenant limit 1)
      from tenants t
     where t.tenant is not null
), on_time as (
    select w.*
      from generate_series(0, 9) as p (priority)
     cross join lateral (
            select run, job, tenant, priority, due_at, late, force, attempts
              from waiting w
             where w.queue is null and w.late = false and w.priority = p.priority and w.due_at <= $1
               and w.for_node is null and get_bit($2::bytea, w.partition & 255) = 1 and (w.force or w.attempts > 0 or (($3::uuid[])[width_bucket(w.job, $3::uuid[])] = w.job) is not true) and (($6::uuid[])[width_bucket(w.job, $6::uuid[])] = w.job) is not true
               and ((select count(*) from backlog_work) = 0
                    or not exists (select 1 from backlog_work b where b.job = w.job and w.lot <= b.up_to))
             order by w.due_at, w.run
             limit $4) w
     order by w.priority desc, w.due_at, w.run
     limit $4
), late as (
    select w.*
      from tenants t
     cross join lateral (
            select run, job, tenant, priority, due_at, late, force, attempts
              from waiting w
             where w.queue is null and w.late and w.tenant = t.tenant and w.due_at <= $1
               and w.for_node is null and get_bit($2::bytea, w.partition & 255) = 1 and (w.force or w.attempts > 0 or (($3::uuid[])[width_bucket(w.job, $3::uuid[])] = w.job) is not true) and (($6::uuid[])[width_bucket(w.job, $6::uuid[])] = w.job) is not true
               and ((select count(*) from backlog_work) = 0
                    or not exists (select 1 from backlog_work b where b.job = w.job and w.lot <= b.up_to))
             order by w.priority desc, w.due_at, w.run
             limit (select greatest(1, least($5, ($4 + count(tenant) - 1) / count(tenant))) from tenants)) w
)
select * from on_time
 union all
select * from late
 order by late, priority desc, due_at, run;
