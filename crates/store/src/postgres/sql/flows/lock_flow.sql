-- Locks flow $1, so that no other transaction advances it. Primary key: flows.
select id from flows where id = $1 for update;
