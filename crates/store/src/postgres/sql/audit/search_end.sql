-- Finds the lowest id that a search of the audit trail may read: the row at offset $4, newest first, of tenant $1, among ids from $2
-- to before $3. Index: audit_tenant, backwards. No row: there are fewer.
select id from audit where tenant = $1 and id >= $2 and id < $3 order by id desc offset $4 limit 1;
