-- Lists up to ?2 active backfills after id ?1. Index: backfills_active, which is small.
-- Active: the backfill has runs to make, or runs that have not ended.
select b.id from backfills b indexed by backfills_active where b.active = 1 and b.id > ?1 order by b.id limit ?2;
