-- Lists the newest $3 backfills of job $1 whose range contains the instant $2. Index: backfills_job.
select b.id, b.job, b.created_at, b.created_by, b.state, b.from_at, b.to_at, b.newest_first
  from backfills b
 where b.job = $1 and b.from_at <= $2 and b.to_at >= $2
 order by b.id desc
 limit $3;
