-- Removes the audit rows older than $1 among the oldest $2. Primary key: audit.
-- Reads no other rows: ids increase with time.
delete from audit where id in (select id from (select id, at from audit order by id limit $2) as oldest where at < $1);
