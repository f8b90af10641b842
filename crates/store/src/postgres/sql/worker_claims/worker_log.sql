-- Appends $4 to the log of the claim on run $2 of tenant $1 under fence $3, and keeps the last $5 characters.
-- Primary key: worker_claims.
update worker_claims set log = right(coalesce(log, '') || $4, $5) where run = $2 and tenant = $1 and fence = $3;
