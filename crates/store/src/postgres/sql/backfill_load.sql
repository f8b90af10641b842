-- Up to $3 backfills behind $2 of jobs in the partitions $1 that somebody has to look after. Indexes: backfills_active, which is short; key: epochs.
-- `& 255`: a damaged partition number must not fail the statement.
select b.id
  from backfills b
  join epochs e on e.job = b.job
 where b.active and b.id > $2 and get_bit($1::bytea, e.partition & 255) = 1
 order by b.id
 limit $3;
