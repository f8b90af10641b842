-- Up to ?2 backfills behind ?1 that somebody has to look after. Index: backfills_active, which is short.
select b.id from backfills b indexed by backfills_active where b.active = 1 and b.id > ?1 order by b.id limit ?2;
