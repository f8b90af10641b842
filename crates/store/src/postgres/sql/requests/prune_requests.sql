-- Removes up to $2 idempotency keys created before $1. Index: requests_created.
delete from requests where (tenant, key) in (select tenant, key from requests where created_at < $1 limit $2);
