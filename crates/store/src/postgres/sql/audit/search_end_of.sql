-- As search_end.sql ($1 tenant, $2 lowest id, $3 highest id, excluded, $4 offset), among the rows of subject $5.
-- Index: audit_subject, backwards.
select id from audit where tenant = $1 and subject = $5 and id >= $2 and id < $3 order by id desc offset $4 limit 1;
