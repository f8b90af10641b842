-- Extends the claim on run ?2 of tenant ?1 under fence ?3 to ?4. Primary key: worker_claims.
-- A claim that a receiver accepted (queue '') lives until its timeout without heartbeats; a heartbeat does not shorten it.
update worker_claims set until = case when queue = '' then until else ?4 end where run = ?2 and tenant = ?1 and fence = ?3;
