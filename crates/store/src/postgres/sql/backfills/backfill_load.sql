-- Lists up to $3 active backfills after id $2 whose jobs are in the partitions $1 (a bitmap of 256 bits).
-- Index: backfills_active, which is small. Primary key: epochs.
-- Active: the backfill has runs to make, or runs that have not ended.
-- `& 255`: a damaged partition number must not fail the statement.
select b.id
  from backfills b
  join epochs e on e.job = b.job
 where b.active and b.id > $2 and get_bit($1::bytea, e.partition & 255) = 1
 order by b.id
 limit $3;
