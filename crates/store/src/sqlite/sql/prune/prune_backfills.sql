-- Removes up to ?2 backfills that finished before ?1 and are no longer active. Index: backfills_over.
delete from backfills where id in (
    select b.id from backfills b indexed by backfills_over where b.active = 0 and b.finished_at < ?1 limit ?2);
