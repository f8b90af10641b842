-- Replaces the log of the claim on run ?1 by ?2. Primary key: worker_claims. The caller has read the claim in this transaction.
update worker_claims set log = ?2 where run = ?1;
