-- Lengthens, to ?4, the claim on run ?2 of tenant ?1 under the fence ?3. Key: worker_claims.
update worker_claims set until = ?4 where run = ?2 and tenant = ?1 and fence = ?3;
