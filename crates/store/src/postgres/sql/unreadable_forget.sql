-- Forgets rows that were seen last before $1. Index: unreadable_seen.
delete from unreadable where seen_at < $1;
