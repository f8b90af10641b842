-- Removes up to ?2 tokens that ended before time ?1. Index: tokens_id, which it reads whole: the table is small.
delete from tokens
 where id in (select id from tokens where revoked_at < ?1 or expires_at < ?1 order by id limit ?2);
