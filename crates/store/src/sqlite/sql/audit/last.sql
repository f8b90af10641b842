-- Reads the highest id of the audit trail. Primary key: audit, backwards.
select id from audit order by id desc limit 1;
