-- Sets the chosen tenant of the session with id ?1 to ?2. Index: sessions_id.
update sessions set tenant = ?2 where id = ?1;
