-- Deletes up to ?3 sessions that expired until ?1 or were last used until ?2. Index: sessions_id, which it reads whole: the table
-- is small.
delete from sessions
 where id in (select id from sessions where expires_at <= ?1 or seen_at <= ?2 order by id limit ?3);
