-- Lengthens, to ?4, the claim on run ?2 of tenant ?1 under the fence ?3. What a receiver has accepted lives until its time-out
-- without beats, and no shorter with one. Key: worker_claims.
update worker_claims set until = case when queue = '' then until else ?4 end where run = ?2 and tenant = ?1 and fence = ?3;
