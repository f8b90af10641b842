-- Removes the audit rows from before $1 among the oldest $2. Only those are looked at: ids rise with time. Key: audit.
delete from audit where id in (select id from (select id, at from audit order by id limit $2) as oldest where at < $1);
