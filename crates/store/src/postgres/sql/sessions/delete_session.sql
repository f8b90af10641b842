-- Deletes the session with id $1. Index: sessions_id.
delete from sessions where id = $1;
