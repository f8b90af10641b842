-- Removes up to $2 jobs that were deleted before $1 and have neither runs nor skip ranges.
-- Indexes: jobs_deleted, runs_history, skip_ranges_history.
delete from jobs where id in (
    select j.id
      from jobs j
     where j.deleted_at < $1
       and not exists (select 1 from runs r where r.job = j.id)
       and not exists (select 1 from skip_ranges g where g.job = j.id)
     limit $2)
returning id;
