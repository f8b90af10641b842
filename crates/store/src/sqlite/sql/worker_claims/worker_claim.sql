-- Reads the claim of a worker, or of a receiver that accepted it, on run ?2 of tenant ?1. Primary key: worker_claims.
select worker, until, timeout_at, queue = '' as accepted from worker_claims where run = ?2 and tenant = ?1;
