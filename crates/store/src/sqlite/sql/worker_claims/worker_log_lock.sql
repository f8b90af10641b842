-- Reads the log of the claim on run ?2 of tenant ?1 under fence ?3. Primary key: worker_claims.
select log from worker_claims where run = ?2 and tenant = ?1 and fence = ?3;
