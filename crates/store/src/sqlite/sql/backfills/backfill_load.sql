-- Lists up to ?3 active backfills after id ?2, if ?1: the one partition of a file is among those asked for.
-- Index: backfills_active, which is small. Active: the backfill has runs to make, or runs that have not ended.
select b.id
  from backfills b indexed by backfills_active
 where b.active = 1 and ?1 and b.id > ?2
 order by b.id
 limit ?3;
