-- Up to ?1 rows, those seen last first, each with the number of all. Index: unreadable_seen.
select relation, key, error, seen_at, (select count(*) from unreadable) as count
  from unreadable
 order by seen_at desc, relation, key
 limit ?1;
