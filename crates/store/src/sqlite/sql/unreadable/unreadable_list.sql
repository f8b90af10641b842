-- Lists up to ?1 notes of unreadable rows, most recently seen first, with the total count. Index: unreadable_seen.
select relation, key, error, seen_at, (select count(*) from unreadable) as count
  from unreadable
 order by seen_at desc, relation, key
 limit ?1;
