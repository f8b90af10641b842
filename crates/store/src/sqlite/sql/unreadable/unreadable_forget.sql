-- Removes notes of unreadable rows that were last seen before ?1. Index: unreadable_seen.
delete from unreadable where seen_at < ?1;
